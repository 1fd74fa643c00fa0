//! Turns what serde says about an entry into a problem with a fix.

use super::document::Entry;
use crate::problem::Problem;

/// The problem behind serde's message; `at` is the entry it points at, none for the document as a whole.
pub(super) fn problem(at: Option<&Entry>, message: &str) -> Problem {
    let reason = message.trim().to_owned();
    let fix = fix(&reason);
    match at {
        Some(entry) => {
            Problem { key: entry.key.clone(), value: entry.value.clone(), reason, fix, place: entry.place.clone() }
        }
        None => Problem::new("the file", "", reason, fix),
    }
}

/// The key that serde misses in a table, if that is the message.
pub(super) fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

fn fix(reason: &str) -> String {
    let names = quoted(reason);
    if reason.starts_with("unknown field") {
        return unknown(&names, "this key", "the keys here are");
    }
    if reason.starts_with("unknown variant") {
        return unknown(&names, "this value", "the values are");
    }
    if let Some(name) = missing(reason) {
        return format!("add a line `{name} = ...` to this table");
    }
    if reason.contains("socket address") {
        return "write \"IP:port\", such as \"127.0.0.1:8080\" or \"[::1]:8080\"".to_owned();
    }
    if reason.contains("IP address") {
        return "write an IP address in quotes, such as \"192.0.2.7\" or \"2001:db8::7\"".to_owned();
    }
    let expected = reason.rsplit_once("expected ").map(|(_, expected)| expected);
    expected.map_or_else(|| "correct the value, or remove the line to take the default".to_owned(), wanted)
}

/// The fix for a name that does not exist: the one that was probably meant, else all that exist.
fn unknown(names: &[&str], what: &str, all: &str) -> String {
    let Some((given, known)) = names.split_first() else { return format!("remove {what}") };
    let nearest = known.iter().map(|name| (distance(given, name), *name)).min();
    match nearest {
        Some((edits, name)) if edits <= 3 && edits < name.len() => format!("did you mean `{name}`?"),
        Some(_) => format!("{all} {}", known.join(", ")),
        None => format!("remove {what}"),
    }
}

/// What to write where serde expected a type.
fn wanted(expected: &str) -> String {
    let whole = |bits: &str| -> Option<String> {
        let (signed, bits) = (bits.starts_with('i'), bits.strip_prefix(['u', 'i'])?.parse::<u32>().ok()?);
        (!signed && bits <= 32).then(|| format!("write a whole number from 0 to {}", (1_u64 << bits) - 1))
    };
    match expected {
        "a boolean" => "write true or false".to_owned(),
        "a string" => "write text in \"quotes\"".to_owned(),
        "usize" | "u64" => "write a whole number, 0 or more".to_owned(),
        "f32" | "f64" => "write a number".to_owned(),
        "a sequence" => "write a list in [brackets]".to_owned(),
        other => whole(other).unwrap_or_else(|| format!("write {other}")),
    }
}

/// The names in `backticks`, in order.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Insertions, deletions and replacements between two names.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, from) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_recognized_and_a_foreign_one_lists_all() {
        let known = "unknown field `http_bnd`, expected one of `http_bind`, `media_bind`";
        assert_eq!(fix(known), "did you mean `http_bind`?");
        let foreign = "unknown field `certificate`, expected `http_bind` or `media_bind`";
        assert_eq!(fix(foreign), "the keys here are http_bind, media_bind");
    }

    #[test]
    fn number_types_become_ranges() {
        assert_eq!(fix("invalid value: integer `70000`, expected u16"), "write a whole number from 0 to 65535");
        assert_eq!(fix("invalid type: string \"x\", expected u32"), "write a whole number from 0 to 4294967295");
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!([distance("", "abc"), distance("abc", "abc"), distance("kitten", "sitting")], [3, 0, 3]);
    }
}
