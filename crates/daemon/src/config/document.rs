//! A parsed file with the command line's assignments laid over it, where each entry knows its place.
//!
//! All parts share one virtual text, so that a span says both what was written and where:
//!
//! ```text
//! | the file ............ | log.level=debug | http_bind='...' |
//! 0                        end of the file   one assignment each
//! ```

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Error};

use crate::problem::Problem;

/// The text of the file and of each assignment, for a [`Document`] to borrow.
pub(super) struct Text {
    file: String,
    /// The assignments, each behind so many spaces that its spans continue those before it.
    assignments: Vec<String>,
}

#[derive(Clone)]
pub(super) struct Document<'t> {
    text: &'t Text,
    root: Spanned<DeTable<'t>>,
}

/// An entry of the document.
pub(super) struct Entry {
    /// Its key with those of the tables around it: `log.level`, `transceivers[0].address`.
    pub(super) key: String,
    /// Its value as written.
    pub(super) value: String,
    /// Where it was written.
    pub(super) place: String,
}

impl Text {
    /// Brings assignments into TOML: `key=value`, where a value that is not TOML is taken as a string.
    pub(super) fn new(file: String, assignments: &[String]) -> Result<Self, Vec<Problem>> {
        let mut text = Self { file, assignments: Vec::new() };
        let mut problems = Vec::new();
        for assignment in assignments {
            match spell(assignment) {
                Some(spelled) => {
                    let before = text.assignments.last().map_or(text.file.len(), String::len);
                    // The line break keeps the last entry of the file and this one apart.
                    text.assignments.push(format!("{}\n{spelled}", " ".repeat(before)));
                }
                None => {
                    let fix = "write key=value, such as --set log.level=debug";
                    problems.push(Problem::new("--set", assignment, "not an assignment", fix));
                }
            }
        }
        if problems.is_empty() { Ok(text) } else { Err(problems) }
    }

    fn get(&self, span: &Range<usize>) -> &str {
        let holder = self.assignments.iter().find(|text| span.start < text.len());
        let text = if span.start < self.file.len() { Some(&self.file) } else { holder };
        text.and_then(|text| text.get(span.clone())).unwrap_or_default()
    }

    fn place(&self, span: &Range<usize>) -> String {
        if span.start < self.file.len() {
            format!("line {}", line_of(&self.file, span.start))
        } else {
            "given with --set".to_owned()
        }
    }
}

impl<'t> Document<'t> {
    /// Parses all of it, or reports all that is not TOML.
    pub(super) fn parse(text: &'t Text) -> Result<Self, Vec<Problem>> {
        let (mut root, mut errors) = DeTable::parse_recoverable(&text.file);
        errors.sort_by_key(|error| error.span().map(|span| span.start));
        let mut errors: Vec<Problem> = errors.iter().map(|error| text.syntax_problem(error)).collect();
        for assignment in &text.assignments {
            match DeTable::parse(assignment) {
                Ok(table) => merge(root.get_mut(), table.into_inner()),
                Err(error) => errors.push(text.syntax_problem(&error)),
            }
        }
        if errors.is_empty() { Ok(Self { text, root }) } else { Err(errors) }
    }

    pub(super) fn root(&self) -> &Spanned<DeTable<'t>> {
        &self.root
    }

    /// The innermost entry that an error's span points at.
    pub(super) fn locate(&self, span: &Range<usize>) -> Option<Entry> {
        find_in_table(self.root.get_ref(), span, "")
            .map(|(key, key_span, value_span)| self.entry(key, key_span, value_span))
    }

    /// Takes the innermost entry at the span out of the document.
    pub(super) fn remove(&mut self, span: &Range<usize>) -> bool {
        remove_from_table(self.root.get_mut(), span)
    }

    /// Adds place and spelling to a problem that knows its key alone.
    pub(super) fn place_of(&self, mut problem: Problem) -> Problem {
        if let Some(entry) = self.lookup(&problem.key) {
            problem.place = entry.place;
            if problem.value.is_empty() {
                problem.value = entry.value;
            }
        } else if problem.place.is_empty() {
            problem.place = "the default".to_owned();
        }
        problem
    }

    fn lookup(&self, key: &str) -> Option<Entry> {
        let mut table = self.root.get_ref();
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            let (name, index) = match part.split_once('[') {
                Some((name, index)) => (name, index.strip_suffix(']')?.parse::<usize>().ok()),
                None => (part, None),
            };
            let (found, value) = table.iter().find(|(found, _)| found.get_ref() == name)?;
            let mut span = found.span();
            let mut value = value;
            if let Some(index) = index {
                value = value.get_ref().as_array()?.get(index)?;
                span = value.span();
            }
            if parts.peek().is_none() {
                return Some(self.entry(key.to_owned(), span, value.span()));
            }
            table = value.get_ref().as_table()?;
        }
        None
    }

    fn entry(&self, key: String, key_span: Range<usize>, value_span: Range<usize>) -> Entry {
        const LONGEST: usize = 60;
        let written = self.text.get(&value_span);
        let line = written.lines().next().unwrap_or_default();
        let mut value: String = line.chars().take(LONGEST).collect();
        if value.len() < written.len() {
            value.push_str(" ...");
        }
        let place = self.text.place(&key_span);
        Entry { key, value, place }
    }
}

impl Text {
    fn syntax_problem(&self, error: &Error) -> Problem {
        let span = error.span().unwrap_or_default();
        let line = line_of(&self.file, span.start);
        let written = self.file.lines().nth(line - 1).unwrap_or_default().trim();
        let fix = "write TOML: key = value, with text in \"quotes\"";
        let mut problem = Problem::new(written, "", error.message(), fix);
        problem.place = self.place(&span);
        problem
    }
}

fn spell(assignment: &str) -> Option<String> {
    let is_toml = |text: &str| DeTable::parse(text).is_ok_and(|table| table.get_ref().len() == 1);
    if is_toml(assignment) {
        return Some(assignment.to_owned());
    }
    let (key, value) = assignment.split_once('=')?;
    let quoted = format!("{key}={}", toml::Value::from(value.trim()));
    is_toml(&quoted).then_some(quoted)
}

/// Lays one table over another: tables merge, anything else replaces what was there.
fn merge<'t>(below: &mut DeTable<'t>, above: DeTable<'t>) {
    for (key, value) in above {
        let name = key.get_ref().as_ref();
        let both_tables = value.get_ref().is_table() && below.get(name).is_some_and(|below| below.get_ref().is_table());
        if both_tables {
            if let (Some(DeValue::Table(below)), DeValue::Table(above)) =
                (below.get_mut(name).map(Spanned::get_mut), value.into_inner())
            {
                merge(below, above);
            }
        } else {
            // An insertion alone would keep the key of below with its place.
            below.remove(name);
            below.insert(key, value);
        }
    }
}

fn find_in_table(
    table: &DeTable<'_>,
    span: &Range<usize>,
    prefix: &str,
) -> Option<(String, Range<usize>, Range<usize>)> {
    table.iter().find_map(|(key, value)| {
        let name = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        find_in_value(value, span, &name)
            .or_else(|| (key.span() == *span || covers(&value.span(), span)).then(|| (name, key.span(), value.span())))
    })
}

fn find_in_value(
    value: &Spanned<DeValue<'_>>,
    span: &Range<usize>,
    name: &str,
) -> Option<(String, Range<usize>, Range<usize>)> {
    match value.get_ref() {
        DeValue::Table(table) => find_in_table(table, span, name),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(index, value)| {
            let name = format!("{name}[{index}]");
            find_in_value(value, span, &name)
                .or_else(|| covers(&value.span(), span).then(|| (name, value.span(), value.span())))
        }),
        _ => None,
    }
}

fn remove_from_table(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    if table.iter_mut().any(|(_, value)| remove_from_value(value, span)) {
        return true;
    }
    let found = table.iter().find(|(key, value)| key.span() == *span || covers(&value.span(), span));
    let Some(name) = found.map(|(key, _)| key.get_ref().to_string()) else { return false };
    table.remove(name.as_str()).is_some()
}

fn remove_from_value(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>) -> bool {
    match value.get_mut() {
        DeValue::Table(table) => remove_from_table(table, span),
        DeValue::Array(array) => {
            if array.iter_mut().any(|value| remove_from_value(value, span)) {
                return true;
            }
            let Some(index) = array.iter().position(|value| covers(&value.span(), span)) else { return false };
            let mut rest = DeArray::new();
            array.iter().enumerate().filter(|(at, _)| *at != index).for_each(|(_, value)| rest.push(value.clone()));
            *array = rest;
            true
        }
        _ => false,
    }
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
