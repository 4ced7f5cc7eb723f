//! Where the files of profiles are: `DIR/plugins/profile/<run>/<host>.xplane.pb`, which is where TensorBoard and XProf look.

use crate::merge::merge;
use crate::xspace::XSpace;
use crate::{ProfileError, chrome};
use prost::Message;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the name of an XSpace file ends with.
const XSPACE: &str = ".xplane.pb";

/// The folder of one run: the profiles of all hosts at one time.
#[derive(Clone, Debug)]
pub struct ProfileFolder {
    path: PathBuf,
}

/// The files of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFiles {
    /// The XSpace, for TensorBoard and XProf.
    pub xspace: PathBuf,
    /// The trace, for <https://ui.perfetto.dev>.
    pub trace: PathBuf,
}

impl ProfileFolder {
    /// Names the folder of a run that begins now, below the folder that TensorBoard is given. Runs that begin in the same
    /// second have different folders.
    pub fn new_run(folder: &Path) -> Self {
        let run = name_of_time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        let runs = folder.join("plugins").join("profile");
        let names = std::iter::once(run.clone()).chain((2..).map(|count| format!("{run}_{count}")));
        let path = names.map(|name| runs.join(name)).find(|path| !path.exists()).unwrap_or_else(|| runs.join(run));
        Self { path }
    }

    /// Writes a host's profile: `plugin`, an encoded XSpace of a plugin's profiler or nothing, and `own`, joined.
    ///
    /// # Errors
    /// [`ProfileError::Message`] if the plugin's bytes are no XSpace, [`ProfileError::File`] if a file cannot be written.
    pub fn write(&self, host: &str, plugin: &[u8], own: &XSpace) -> Result<(ProfileFiles, XSpace), ProfileError> {
        let mut space = decode("the plugin's profile", plugin)?;
        merge(&mut space, own);
        let name: String =
            host.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
        let xspace = self.path.join(name.clone() + XSPACE);
        let trace = self.path.join(name + ".trace.json.gz");
        let file = |path: &Path| {
            let path = path.to_path_buf();
            move |source| ProfileError::File { path, source }
        };
        std::fs::create_dir_all(&self.path).map_err(file(&self.path))?;
        std::fs::write(&xspace, space.encode_to_vec()).map_err(file(&xspace))?;
        std::fs::write(&trace, chrome::gzipped(&space)).map_err(file(&trace))?;
        Ok((ProfileFiles { xspace, trace }, space))
    }
}

/// Returns a time in UTC as `2026_11_28_04_50_00`, from its seconds since 1970.
fn name_of_time(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's `civil_from_days`: years begin in March, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let months = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year}_{month:02}_{day:02}_{hour:02}_{minute:02}_{second:02}")
}

/// Reads the profiles in a path: an `.xplane.pb` file, the folder of a run, or a folder with runs, of which the latest is
/// read. Planes of several hosts are those of one XSpace. Returns also which file or folder was read.
///
/// # Errors
/// [`ProfileError::None`], [`ProfileError::File`] and [`ProfileError::Message`].
pub fn read(path: &Path) -> Result<(PathBuf, XSpace), ProfileError> {
    let (found, files) = files_in(path)?;
    let mut whole = XSpace::default();
    for path in files {
        let bytes = std::fs::read(&path).map_err(|source| ProfileError::File { path: path.clone(), source })?;
        let space = decode(&path.display().to_string(), &bytes)?;
        whole.planes.extend(space.planes);
        whole.hostnames.extend(space.hostnames);
    }
    Ok((found, whole))
}

fn files_in(path: &Path) -> Result<(PathBuf, Vec<PathBuf>), ProfileError> {
    if path.is_file() {
        return Ok((path.to_path_buf(), vec![path.to_path_buf()]));
    }
    let runs = path.join("plugins").join("profile");
    let latest = entries(&runs).into_iter().rev().find(|run| !xspaces(run).is_empty());
    let folder = latest.unwrap_or_else(|| path.to_path_buf());
    match xspaces(&folder) {
        files if files.is_empty() => Err(ProfileError::None { path: path.to_path_buf() }),
        files => Ok((folder, files)),
    }
}

fn xspaces(folder: &Path) -> Vec<PathBuf> {
    let is_xspace = |path: &PathBuf| path.to_string_lossy().ends_with(XSPACE);
    entries(folder).into_iter().filter(is_xspace).collect()
}

/// Returns what is in a folder, by name; nothing for a folder that is not there.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Decodes an XSpace. Plugins append a zero byte, which is no part of the message.
fn decode(what: &str, bytes: &[u8]) -> Result<XSpace, ProfileError> {
    let shorter = |error| bytes.strip_suffix(&[0]).map_or(Err(error), XSpace::decode);
    let decoded = XSpace::decode(bytes).or_else(shorter);
    decoded.map_err(|error| ProfileError::Message { what: what.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HOST_PLANE, PlaneBuilder, ProfileReport};

    fn space(name: &str) -> XSpace {
        XSpace { planes: vec![PlaneBuilder::new(name).finish()], ..XSpace::default() }
    }

    #[test]
    fn times_have_the_names_of_their_days() {
        let cases = [
            (0, "1970_01_01_00_00_00"),
            (951_782_400, "2000_02_29_00_00_00"),
            (951_868_799, "2000_02_29_23_59_59"),
            (1_735_689_599, "2024_12_31_23_59_59"),
            (1_735_689_600, "2025_01_01_00_00_00"),
            (4_107_542_400, "2100_03_01_00_00_00"),
        ];
        for (seconds, name) in cases {
            assert_eq!(name_of_time(seconds), name);
        }
    }

    #[test]
    fn a_plugins_planes_come_before_the_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let mut plugin = space("/device:TPU:0").encode_to_vec();
        plugin.push(0);
        let run = ProfileFolder::new_run(folder.path());
        let (files, joined) = run.write("a host", &plugin, &space(HOST_PLANE)).unwrap();
        assert!(
            files.xspace.ends_with("a_host.xplane.pb") && files.trace.ends_with("a_host.trace.json.gz"),
            "{files:?}"
        );
        let names = |space: &XSpace| space.planes.iter().map(|plane| plane.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&joined), ["/device:TPU:0", HOST_PLANE]);
        for path in [folder.path(), &run.path, &files.xspace] {
            assert_eq!(names(&read(path).unwrap().1), names(&joined), "{}", path.display());
        }
    }

    #[test]
    fn runs_have_folders_of_their_own_and_the_latest_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["/device:CUSTOM:a", "/device:CUSTOM:b"] {
            ProfileFolder::new_run(folder.path()).write("host", &[], &space(name)).unwrap();
        }
        assert_eq!(entries(&folder.path().join("plugins/profile")).len(), 2);
        assert_eq!(read(folder.path()).unwrap().1.planes[0].name, "/device:CUSTOM:b");
    }

    #[test]
    fn what_is_no_profile_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let none = ProfileReport::read(folder.path()).unwrap_err();
        assert!(matches!(none, ProfileError::None { .. }), "{none}");
        let path = folder.path().join("x.xplane.pb");
        std::fs::write(&path, [0x0a, 200, 1]).unwrap();
        let broken = ProfileReport::read(&path).unwrap_err();
        assert!(
            broken.to_string().contains("x.xplane.pb") && matches!(broken, ProfileError::Message { .. }),
            "{broken}"
        );
    }
}
