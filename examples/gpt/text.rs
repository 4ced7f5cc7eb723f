//! Text on disk: the files of a folder, or one file, as documents.
//!
//! Text is a file that is UTF-8 and, in a folder, whose name ends in one of [`ENDINGS`].

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// The endings of the files of a folder that are read.
const ENDINGS: [&str; 4] = ["rst", "txt", "md", "text"];

/// One of this many documents is held out.
const HELD_OUT: usize = 50;

/// The documents of a training run.
#[derive(Debug, PartialEq)]
pub struct Documents {
    /// What the model learns.
    pub train: Vec<String>,
    /// What it is tested on.
    pub held_out: Vec<String>,
}

/// Returns the folder where `cargo xtask demo gpt` puts its text.
pub fn default_folder() -> Result<PathBuf> {
    let cache = burn_tpu_pjrt::discovery::cache_dir().context("there is no cache folder: set BURN_TPU_CACHE_DIR")?;
    let folder = cache.join("linux-doc");
    ensure!(
        folder.is_dir(),
        "there is no text in `{}`: `cargo xtask demo gpt` fetches one, `--data FILE|DIR` names another",
        folder.display()
    );
    Ok(folder)
}

/// Reads a file, or all text of a folder and its folders, in the order of the paths.
pub fn read(path: &Path) -> Result<Documents> {
    if path.is_dir() {
        return split_documents(read_folder(path)?, path);
    }
    let text = std::fs::read(path).with_context(|| format!("cannot read the text `{}`", path.display()))?;
    let text = String::from_utf8(text).with_context(|| format!("`{}` is not text: it is not UTF-8", path.display()))?;
    split_text(&text, path)
}

fn read_folder(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    list(folder, &mut files)?;
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read the text `{}`", file.display()))?;
        texts.extend(String::from_utf8(bytes).ok().filter(|text| !text.trim().is_empty()));
    }
    if texts.is_empty() {
        let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
        bail!(
            "the folder `{}` has no text: none of its files ends in {endings} and is UTF-8 with some words",
            folder.display()
        );
    }
    Ok(texts)
}

/// Adds the files of a folder and its folders whose endings are those of text.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let context = || format!("cannot list the folder `{}`", folder.display());
    for entry in std::fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        // The type of the entry itself: a link to a folder above would never end.
        let kind = entry.file_type().with_context(context)?;
        let path = entry.path();
        if kind.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Holds out every fiftieth document; of few documents, the end of their text.
fn split_documents(texts: Vec<String>, path: &Path) -> Result<Documents> {
    if texts.len() < 2 * HELD_OUT {
        return split_text(&texts.join("\n"), path);
    }
    let (held_out, train): (Vec<_>, Vec<_>) =
        texts.into_iter().enumerate().partition(|(at, _)| at % HELD_OUT == HELD_OUT - 1);
    let text = |part: Vec<(usize, String)>| part.into_iter().map(|(_, text)| text).collect();
    Ok(Documents { train: text(train), held_out: text(held_out) })
}

/// Holds out the last twentieth of a text.
fn split_text(text: &str, path: &Path) -> Result<Documents> {
    ensure!(!text.trim().is_empty(), "`{}` has no text", path.display());
    let end = text.floor_char_boundary(text.len() - text.len() / 20);
    Ok(Documents { train: vec![text[..end].to_owned()], held_out: vec![text[end..].to_owned()] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_in_the_order_of_its_paths_and_a_fiftieth_is_held_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        for index in 0..100 {
            let path = if index < 50 { format!("a/{index:03}.rst") } else { format!("b{index:03}.txt") };
            std::fs::write(folder.path().join(path), format!("text {index}")).unwrap();
        }
        std::fs::write(folder.path().join("c.png"), [0x89, 0xff]).unwrap();
        std::fs::write(folder.path().join("d.txt"), [0xff, 0xff]).unwrap();
        let documents = read(folder.path()).unwrap();
        assert_eq!(documents.held_out, ["text 49", "text 99"]);
        assert_eq!((documents.train.len(), documents.train[49].as_str()), (98, "text 50"));
    }

    #[test]
    fn of_one_file_the_end_is_held_out_between_characters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("any.name");
        std::fs::write(&path, "ä".repeat(50)).unwrap();
        let documents = read(&path).unwrap();
        assert_eq!(documents.train[0].chars().count() + documents.held_out[0].chars().count(), 50);
        assert!(!documents.held_out[0].is_empty());
    }

    #[test]
    fn what_has_no_text_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("picture.png"), "words").unwrap();
        std::fs::write(folder.path().join("empty.txt"), " \n").unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has no text") && error.contains(".rst, .txt"), "{error}");
        let bytes = folder.path().join("bytes");
        std::fs::write(&bytes, [0xff, 0xfe]).unwrap();
        assert!(read(&bytes).unwrap_err().to_string().contains("is not text"));
        assert!(read(&folder.path().join("empty.txt")).unwrap_err().to_string().contains("has no text"));
        assert!(read(&folder.path().join("none")).unwrap_err().to_string().contains("cannot read the text"));
    }
}
