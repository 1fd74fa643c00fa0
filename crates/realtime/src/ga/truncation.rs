//! Where an item ends that the client did not play to its end.
//!
//! Clients compute the place from their own clocks and buffers, so it often lies a little beyond the item's end, or before its
//! first sample. Either is taken as what is meant; [`Config::strict_truncation`](crate::Config::strict_truncation) answers
//! the first with the API's error instead.

use super::error::ApiError;

/// The end of an item of which `has_ms` are known, cut at `asked_ms`.
pub(crate) fn end_ms(asked_ms: u64, has_ms: Option<u64>, strict: bool) -> Result<u64, ApiError> {
    match has_ms {
        Some(has_ms) if asked_ms > has_ms && strict => Err(ApiError::truncate_beyond(has_ms, asked_ms)),
        Some(has_ms) => Ok(asked_ms.min(has_ms)),
        None => Ok(asked_ms),
    }
}

/// The words that were said by `end_ms` of `has_ms`, at an even rate, rounded down to a word: what nobody heard must not stand in
/// the context, a word that was heard may miss.
pub(crate) fn words(transcript: &str, end_ms: u64, has_ms: Option<u64>) -> &str {
    let Some(has_ms) = has_ms.filter(|has_ms| *has_ms > 0 && end_ms > 0) else { return "" };
    if end_ms >= has_ms {
        return transcript;
    }
    let chars = transcript.chars().count();
    let most = (chars as u64).saturating_mul(end_ms) / has_ms;
    let most = usize::try_from(most).unwrap_or(chars);
    let cut = transcript.char_indices().nth(most).map_or(transcript.len(), |(at, _)| at);
    let (said, rest) = transcript.split_at(cut);
    if rest.starts_with(char::is_whitespace) {
        return said.trim_end();
    }
    match said.rfind(char::is_whitespace) {
        Some(space) => said[..space].trim_end(),
        // A script without spaces has words of a sign or two.
        None if said.is_ascii() => "",
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t02_beyond_the_end_is_the_end_or_an_error_where_that_is_wanted() {
        assert_eq!(end_ms(3760, Some(3700), false), Ok(3700));
        assert_eq!(end_ms(3700, Some(3700), true), Ok(3700));
        let error = end_ms(3760, Some(3700), true).unwrap_err().to_json(None);
        assert_eq!(error["message"], "Audio content of 3700ms is already shorter than 3760ms");
        assert!(error["code"].is_null());
        assert_eq!(end_ms(50, None, true), Ok(50));
    }

    #[test]
    fn t03_words_are_cut_at_an_even_rate_and_whole() {
        let text = "one two three four";
        let said = |ms| words(text, ms, Some(1800));
        assert_eq!((said(0), said(250), said(300), said(799), said(1300)), ("", "", "one", "one two", "one two three"));
        assert_eq!((said(1799), said(1800), said(9000)), ("one two three", text, text));
        assert_eq!(words("你好世界", 1000, Some(2000)), "你好");
        assert_eq!((words(text, 500, None), words("", 5, Some(9)), words(text, 5, Some(0))), ("", "", ""));
    }
}
