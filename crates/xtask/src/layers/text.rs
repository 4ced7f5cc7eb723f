//! Rust source with its comments, or its comments and literals, blanked out: enough of a lexer to look for words
//! without finding them in prose. Line numbers survive.

/// What to blank besides comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Code and literals stay.
    Literals,
    /// Only code stays.
    Code,
}

/// The source with everything else replaced by spaces.
pub fn strip(source: &str, keep: Keep) -> String {
    let mut rest = source;
    let mut out = String::with_capacity(source.len());
    while !rest.is_empty() {
        let (length, blank) = token(rest, &out, keep);
        let (token, tail) = rest.split_at(length);
        match blank {
            true => out.extend(token.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
            false => out.push_str(token),
        }
        rest = tail;
    }
    out
}

/// Length in bytes of the token at the start, and whether it is blanked.
fn token(rest: &str, before: &str, keep: Keep) -> (usize, bool) {
    let literal = keep == Keep::Code;
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), true);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), true);
    }
    if rest.starts_with('"') {
        return (quoted(rest, '"'), literal);
    }
    let inside_a_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if !inside_a_word && let Some(length) = raw_string(rest) {
        return (length, literal);
    }
    if let Some(length) = character(rest) {
        return (length, literal);
    }
    (rest.chars().next().map_or(0, char::len_utf8), false)
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// A literal with backslash escapes, from its opening quote to its closing one.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `r"…"`, `r#"…"#`, and with `b` or `c` in front.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let body = prefix.trim_start_matches('#');
    let hashes = &prefix[..prefix.len() - body.len()];
    let body = body.strip_prefix('"')?;
    let end = format!("\"{hashes}");
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(rest.len() - body.len() + length)
}

/// A character literal; `None` for a lifetime.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    let closed = inside[first.len_utf8()..].starts_with('\'');
    (first == '\\' || closed).then(|| quoted(rest, '\''))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        strip(source, Keep::Code).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_go_and_lines_stay() {
        let source = "a // unsafe\n/* unsafe /* nested */ still */ b\n/// unsafe doc\nc";
        assert_eq!(code(source), "a b c");
        assert_eq!(strip(source, Keep::Literals).lines().count(), 4);
    }

    #[test]
    fn literals_go_only_when_asked() {
        let source = r###"x("unsafe \" {", r#"unsafe " "#, b"unsafe", '"', '\'', 'u') + y"###;
        assert_eq!(code(source), "x( , , b , , , ) + y");
        assert_eq!(strip(source, Keep::Literals), source);
    }

    #[test]
    fn lifetimes_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str) -> &'static str { x }"), "fn f<'a>(x: &'a str) -> &'static str { x }");
    }

    #[test]
    fn a_comment_sign_in_a_literal_starts_no_comment() {
        assert_eq!(code("a(\"// no\"); b"), "a( ); b");
        assert_eq!(strip("\"http://x\" // y", Keep::Literals).trim_end(), "\"http://x\"");
    }
}
