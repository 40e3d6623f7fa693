//! "Did you mean": the known name that a mistyped one was probably meant to be.

/// The candidate that is nearest to `word`, if any is near enough to be a slip of the hand: a third of its length in
/// edits, or another spelling in upper and lower case.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = word.to_lowercase();
    let most = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::osa_distance(&folded, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// ``; did you mean `x`?`` where one is near, otherwise ``; known are `a`, `b` ``, otherwise nothing.
pub(crate) fn hint(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(candidate) => format!("; did you mean `{candidate}`?"),
        None if candidates.is_empty() => String::new(),
        None => format!("; known are {}", list(candidates)),
    }
}

/// `` `a`, `b` and `c` ``
pub(crate) fn list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slip_of_the_hand_is_corrected() {
        let known = ["source", "destination", "streams", "url"];
        for (word, expected) in [
            ("sorce", Some("source")),
            ("soruce", Some("source")),
            ("Source", Some("source")),
            ("destinaton", Some("destination")),
            ("stream", Some("streams")),
            ("uri", Some("url")),
            ("table", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn a_hint_lists_what_is_known_where_nothing_is_near() {
        assert_eq!(hint("modus", &["mode", "name"]), "; known are `mode` and `name`");
        assert_eq!(hint("mod", &["mode", "name"]), "; did you mean `mode`?");
        assert_eq!(hint("x", &[]), "");
    }
}
