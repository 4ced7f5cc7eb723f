//! Text of a user in YAML: a word where YAML reads it as one, a quoted string otherwise.
//!
//! Owns: which words need no quotes, the escapes of those that do, and indentation. May not know: what the YAML describes.

/// The words that YAML 1.1 or 1.2 reads as booleans or as nothing, in any case of letters.
const NOT_STRINGS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Returns a string as one line of YAML, which every reader takes as that string.
pub fn text(value: &str) -> String {
    if is_word(value) { value.into() } else { quoted(value) }
}

/// Returns one item a line, indented by `depth` spaces.
pub fn list(depth: usize, items: &[String]) -> String {
    items.iter().map(|item| format!("{:depth$}- {}\n", "", text(item))).collect()
}

/// Returns the lines of a text, each indented by `depth` spaces, without a line end after the last one.
pub fn indented(depth: usize, lines: &str) -> String {
    lines.trim_end().lines().map(|line| format!("{:depth$}{line}", "")).collect::<Vec<_>>().join("\n")
}

/// Returns whether a string needs no quotes. It starts as a name, a path or an option does, which no number does.
fn is_word(value: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    let start = value.trim_start_matches("--").trim_start_matches("..").trim_start_matches("./");
    start.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/')
        && value.chars().all(is_plain)
        && !value.ends_with(':')
        && !NOT_STRINGS.contains(&value.to_ascii_lowercase().as_str())
}

/// Returns a string in double quotes, with everything escaped that YAML does not allow there or would fold.
fn quoted(value: &str) -> String {
    let mut yaml = String::from('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => yaml.extend(['\\', c]),
            '\n' => yaml += "\\n",
            '\t' => yaml += "\\t",
            c if c.is_control() || "\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}".contains(c) => {
                yaml += &format!("\\u{:04X}", u32::from(c));
            }
            c => yaml.push(c),
        }
    }
    yaml + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_options_need_no_quotes() {
        for word in
            ["train", "./train", "../train", "/checkpoints", "--epochs", "us-docker.pkg.dev/p/r:1", "data=8,model=2"]
        {
            assert_eq!(text(word), word);
        }
    }

    /// What is quoted without need does no harm; what is not quoted and should be does.
    #[test]
    fn every_string_is_read_as_that_string() {
        let words = "yes|No|ON|y|null|NULL|~|true|1e3|0x1F|0o7|10|-1|+1|.5|.inf|-.inf|.NaN|1:30|2026-11-28|=|<<|---|--- a|...|- x|-|?|? a\
                     |a: b|a:|:|# no comment|a # b|#a|&a|*a|!a|!!int 3|@a|`a|%a|{a}|[a]|a, b|'a'|\"a\"|it's \"here\"|\\|\\n|a\\|>|>a|\
                     ||| a|a |  |ümlaut|日本|🔥|--|--1|..|./|.a|-x|${HOME}|$(rm -rf /)|{name}|{{}}";
        let mut words: Vec<String> = words.split('|').map(String::from).collect();
        words.extend(
            ["two\nlines\n", "\r\n", "\t", "\0", "\u{7f}", "\u{85}", "\u{2028}x", "\u{feff}x", "\u{ffff}"]
                .map(String::from),
        );
        words.extend((0..128u8).map(|c| char::from(c).to_string()));
        words.extend((0..128u8).map(|c| format!("a{}b", char::from(c))));
        for word in words {
            let yaml = format!("a:\n- b: {}\n", text(&word));
            let read: serde_json::Value =
                serde_saphyr::from_str(&yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
            assert_eq!(read, serde_json::json!({ "a": [{ "b": word }] }), "{yaml}");
        }
    }
}
