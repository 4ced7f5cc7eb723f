//! Links and paths in Markdown: each must lead to a file of the repository, and to a heading of its page.
//!
//! Checked are relative links, images and anchors, and paths of the repository in `code`. Addresses of other hosts are not,
//! since the tests run without a network. An anchor is the heading's text as git hosts and mdBook write it.

use super::is_in_book;
use super::pages::Pages;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Returns what is wrong in the pages: one line for each broken link or path, with page, line and reason.
pub fn check(root: &Path, pages: &Pages) -> Vec<String> {
    let read: BTreeMap<&String, Page> = pages.iter().map(|(path, text)| (path, Page::read(text))).collect();
    let mut broken = Vec::new();
    for (path, page) in &read {
        let links = page.links.iter().filter_map(|(line, link)| Some((line, mistake(root, &read, path, link)?)));
        let lost = page.paths.iter().filter(|(_, path)| !root.join(path).exists());
        let lost = lost.map(|(line, path)| (line, format!("`{path}`: there is no such file")));
        broken.extend(links.chain(lost).map(|(line, what)| format!("{path}:{line}: {what}")));
    }
    broken
}

/// Returns what is wrong with a link of the page at `path`, if anything is.
fn mistake(root: &Path, pages: &BTreeMap<&String, Page>, path: &str, link: &str) -> Option<String> {
    let Some((target, anchor)) = resolve(path, link) else {
        return Some(format!("`{link}` leaves the repository"));
    };
    if !root.join(&target).is_file() {
        return Some(format!("`{link}`: there is no file `{target}`"));
    }
    if is_in_book(path) && !is_in_book(&target) {
        return Some(format!("`{link}`: `{target}` is no part of the book; write it as `code`"));
    }
    let has_heading = |anchor| pages.get(&target).is_some_and(|page| page.anchors.contains(anchor));
    let lost = anchor.is_some_and(|anchor| !has_heading(anchor));
    lost.then(|| format!("`{link}`: no heading of `{target}` has this anchor"))
}

/// Returns the paths that a page links to.
pub fn targets(text: &str, path: &str) -> BTreeSet<String> {
    let links = Page::read(text).links;
    links.iter().filter_map(|(_, link)| Some(resolve(path, link)?.0)).collect()
}

/// What a page refers to, with lines from 1, and what others may refer to.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    paths: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = text[..range.start].matches('\n').count() + 1;
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) if is_relative(&dest_url) => {
                    page.links.push((line, dest_url.into_string()));
                }
                Event::Code(code) if heading.is_none() => {
                    page.paths.extend(repository_path(&code).map(|path| (line, path)))
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// A heading that a page has twice gets a number.
    fn add_anchor(&mut self, heading: &str) {
        let first = anchor(heading);
        let numbered = (1..).map(|number| format!("{first}-{number}"));
        let free = std::iter::once(first.clone()).chain(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }
}

/// The anchor of a heading: lower case, `-` for spaces, letters and digits.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        c => c.is_whitespace().then_some('-'),
    };
    heading.trim().to_lowercase().chars().filter_map(kept).collect()
}

fn is_relative(link: &str) -> bool {
    !link.contains("://") && !link.starts_with("mailto:")
}

/// Returns the path that a link of a page means, from the workspace's folder, and its anchor. `None` if it is outside.
fn resolve<'a>(page: &str, link: &'a str) -> Option<(String, Option<&'a str>)> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    if path.is_empty() {
        return Some((page.to_owned(), anchor));
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some((parts.join("/"), anchor))
}

/// Returns the path if the code is one of a file of the repository: from one of its folders, without blanks or wildcards.
fn repository_path(code: &str) -> Option<String> {
    const FOLDERS: [&str; 6] = ["benches", "docs", "examples", "src", "tests", "xtask"];
    const ENDINGS: [&str; 7] = [".md", ".rs", ".toml", ".py", ".svg", ".txt", ".mlir"];
    let first = code.split_once('/')?.0;
    let ours = FOLDERS.contains(&first) || first == "burn-tpu" || first.starts_with("burn-tpu-");
    let plain = code.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    (ours && plain && ENDINGS.iter().any(|ending| code.ends_with(ending))).then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with two pages of docs, a README and a source.
    fn repository(page: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let pages =
            [("README.md", "# Top\n"), ("docs/a.md", page), ("docs/b.md", "# B, and `c`\n## Twice\n## Twice\n")];
        for (path, text) in pages.into_iter().chain([("src/lib.rs", "")]) {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let pages = pages.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
        check(folder.path(), &pages)
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let page = "[b](b.md) [b](b.md#b-and-c) ![b](./b.md#twice-1)\n\n\
            | [r](../README.md#top) |\n|---|\n| [w](https://x.y/z#q) |\n\n\
            # Here\n[here](#here) `src/lib.rs` `src/lib.rs:41` `src/<family>.rs` `ops/gone.rs`";
        assert_eq!(repository(page), Vec::<String>::new());
    }

    #[test]
    fn each_mistake_names_page_line_and_reason() {
        for (page, expected) in [
            ("[b](c.md)", "docs/a.md:1: `c.md`: there is no file `docs/c.md`"),
            ("\n[b](b.md#d)", "docs/a.md:2: `b.md#d`: no heading of `docs/b.md`"),
            ("[b](#d)", "no heading of `docs/a.md`"),
            ("[b](b.md#twice-2)", "no heading"),
            ("[s](../src/lib.rs)", "`src/lib.rs` is no part of the book"),
            ("[s](../../x.md)", "leaves the repository"),
            ("x\n\n`src/gone.rs`", "docs/a.md:3: `src/gone.rs`: there is no such file"),
            ("[b][x]\n\n[x]: gone.md", "`docs/gone.md`"),
        ] {
            let broken = repository(page);
            assert_eq!(broken.len(), 1, "{page}: {broken:?}");
            assert!(broken[0].contains(expected), "{}", broken[0]);
        }
    }

    #[test]
    fn what_is_in_a_code_block_is_no_link() {
        assert_eq!(repository("    [b](gone.md) `src/gone.rs`\n\n```\n[b](gone.md)\n```\n"), Vec::<String>::new());
    }

    #[test]
    fn anchors_are_those_of_git_hosts() {
        assert_eq!(anchor("What a step spends"), "what-a-step-spends");
        assert_eq!(anchor("`gpt`: a decoder, and 8 bits"), "gpt-a-decoder-and-8-bits");
        assert_eq!(anchor("The program's text"), "the-programs-text");
    }

    #[test]
    fn the_chapters_are_the_links_of_the_summary() {
        let found = targets("- [F](fit.md)\n  - [D](decisions/0001-x.md)\n- [R](../README.md)\n", "docs/SUMMARY.md");
        let expected = ["README.md", "docs/decisions/0001-x.md", "docs/fit.md"];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
