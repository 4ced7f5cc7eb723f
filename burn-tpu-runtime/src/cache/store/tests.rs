use super::*;
use crate::cache::key::CompileEnvironment;

const HOUR: Duration = Duration::from_secs(3600);

fn key(program: u8) -> Key {
    CompileEnvironment::default().key([program; 32], [0; 32])
}

/// A key of the same program elsewhere.
fn key_on(program: u8, platform: &str) -> Key {
    CompileEnvironment { platform: platform.into(), ..CompileEnvironment::default() }.key([program; 32], [0; 32])
}

fn store(folder: &Path, budget_bytes: u64) -> Store {
    Store { lock_wait: Duration::ZERO, ..Store::open(folder, budget_bytes).expect("a folder of our own") }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Says that a file was last used so long ago.
fn age(store: &Store, key: &Key, age: Duration) {
    let file = File::options().write(true).open(store.path(key)).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn what_was_put_is_got_by_its_key_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder.path().join("made/on/the/way"), 1 << 20);
    assert!(store.get(&key(1)).unwrap().is_none());
    assert_eq!(store.put(&key(1), b"one").unwrap(), Some(0));
    assert_eq!(store.put(&key(1), b"one again").unwrap(), Some(0));
    assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"one again");
    assert!(store.get(&key(2)).unwrap().is_none());
    assert!(store.get(&key_on(1, "tpu")).unwrap().is_none());
    assert_eq!(key_on(1, "tpu").differing(&store.relatives(&key_on(1, "tpu"))[0]), ["platform"]);
    store.remove(&key(1));
    assert!(store.get(&key(1)).unwrap().is_none());
}

#[test]
fn the_least_recently_used_leave_first_and_the_budget_holds() {
    let folder = tempfile::tempdir().unwrap();
    let each = (key(0).head().len() + 100) as u64;
    let store = store(folder.path(), 3 * each);
    for program in 1..=3 {
        store.put(&key(program), &[program; 100]).unwrap();
        age(&store, &key(program), HOUR * (10 - u32::from(program)));
    }
    // The oldest is read, so that the second is now the one to go.
    assert!(store.get(&key(1)).unwrap().is_some());
    assert_eq!(store.put(&key(4), &[4; 100]).unwrap(), Some(1));
    let left: Vec<u8> = (1..=4).filter(|&program| store.get(&key(program)).unwrap().is_some()).collect();
    assert_eq!(left, [1, 3, 4]);
    assert_eq!(store.put(&key(5), &vec![5; 4 * each as usize]).unwrap(), None, "more than the folder may hold");
    assert_eq!(store.put(&key(5), &vec![5; 2 * each as usize]).unwrap(), Some(3));
    let bytes: u64 = store.files(|name| name.ends_with(SUFFIX)).unwrap().iter().map(|file| file.bytes).sum();
    assert!(bytes <= 3 * each, "{bytes}");
}

#[test]
fn a_cut_a_changed_head_and_another_form_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 1 << 20);
    let path = store.path(&key(1));
    store.put(&key(1), b"content").unwrap();
    let whole = fs::read(&path).unwrap();
    let head = key(1).head().len();
    for (length, foreign) in [(0, true), (10, true), (head - 1, false)] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = store.get(&key(1)).unwrap_err();
        assert_eq!(matches!(error, StoreError::Foreign { .. }), foreign, "{length}: {error}");
        assert!(error.is_of_the_content(), "{error}");
    }
    for bit in 0..head * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).unwrap();
        assert!(store.get(&key(1)).unwrap_err().is_of_the_content(), "bit {bit}");
    }
    fs::write(&path, String::from_utf8(whole).unwrap().replace("form 1", "form 2")).unwrap();
    assert!(matches!(store.get(&key(1)).unwrap_err(), StoreError::Foreign { .. }));
    store.put(&key(1), b"content").unwrap();
    assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"content");
}

#[test]
fn a_lock_held_elsewhere_stops_writers_and_no_readers() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 1 << 20);
    store.put(&key(1), b"one").unwrap();
    let held = File::open(folder.path().join(LOCK)).unwrap();
    held.lock().unwrap();
    assert!(matches!(store.put(&key(2), b"two").unwrap_err(), StoreError::Locked { .. }));
    assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"one");
    held.unlock().unwrap();
    store.put(&key(2), b"two").unwrap();
    assert_eq!(names(folder.path()).len(), 3, "two programs and the lock: nothing unfinished stays");
}

#[test]
fn what_a_dead_process_left_is_removed_and_what_another_writes_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 1 << 20);
    let (old, new) = (folder.path().join(".unfinished-old"), folder.path().join(".unfinished-new"));
    fs::write(&old, "half a program").unwrap();
    fs::write(&new, "half a program").unwrap();
    File::options().write(true).open(&old).unwrap().set_modified(SystemTime::now() - 2 * HOUR).unwrap();
    store.put(&key(1), b"one").unwrap();
    assert!(!old.exists() && new.exists());
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_or_file_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1 << 20);
        store.put(&key(1), b"one").unwrap();
        for mode in [0o777, 0o770, 0o702, 0o1777] {
            chmod(folder.path(), mode);
            let error = Store::open(folder.path(), 1).unwrap_err();
            assert!(matches!(error, StoreError::Untrusted { .. }), "{error}");
            assert!(error.to_string().contains("chmod"), "{error}");
        }
        chmod(folder.path(), 0o755);
        chmod(&store.path(&key(1)), 0o666);
        assert!(matches!(store.get(&key(1)).unwrap_err(), StoreError::Untrusted { .. }));
        chmod(&store.path(&key(1)), 0o600);
        assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"one");
        let made = folder.path().join("made");
        Store::open(&made, 1).unwrap();
        assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    /// Folder and process of the tests below that need another process.
    const FOLDER: &str = "BURN_TPU_TEST_STORE";

    /// Runs `test` again in a process that `change` has changed.
    fn passes_elsewhere(command: &mut Command, test: &str, folder: &Path) {
        command.arg(format!("cache::store::tests::unix::{test}")).args(["--exact", "--nocapture"]).env(FOLDER, folder);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    /// Root may write anywhere, so a process of root's tries it as somebody else, whose trust in root's files is the same.
    #[test]
    fn a_read_only_folder_serves_what_it_has_and_takes_nothing() {
        if let Some(folder) = std::env::var_os(FOLDER) {
            let store = store(Path::new(&folder), 1 << 20);
            assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"one");
            let error = store.put(&key(2), b"two").unwrap_err();
            assert!(matches!(&error, StoreError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied));
            assert!(!error.is_of_the_content());
            store.remove(&key(1));
            assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"one");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1 << 20);
        store.put(&key(1), b"one").unwrap();
        chmod(&store.path(&key(1)), 0o644);
        chmod(folder.path(), 0o555);
        let test = "a_read_only_folder_serves_what_it_has_and_takes_nothing";
        let mut command = Command::new(std::env::current_exe().unwrap());
        if rustix::process::geteuid().is_root() {
            // `nobody` on every Linux.
            command.uid(65534).gid(65534);
        }
        passes_elsewhere(&mut command, test, folder.path());
        chmod(folder.path(), 0o755);
    }

    /// A limit on file sizes stops a write in its middle, as a full disk does.
    #[test]
    fn a_write_that_the_disk_cuts_short_leaves_nothing_and_loses_nothing() {
        if let Some(folder) = std::env::var_os(FOLDER) {
            let store = store(Path::new(&folder), 1 << 30);
            let error = store.put(&key(2), &vec![2; 1 << 20]).unwrap_err();
            assert!(matches!(error, StoreError::Io { .. }), "{error}");
            assert!(store.get(&key(2)).unwrap().is_none());
            assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"one");
            store.put(&key(3), b"small").unwrap();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), 1 << 30);
        store.put(&key(1), b"one").unwrap();
        let exe = std::env::current_exe().unwrap();
        let mut command = Command::new("sh");
        // 64 blocks of 512 bytes; the signal is ignored so that the write fails instead of ending the process.
        command.args(["-c", r#"trap "" XFSZ; ulimit -f 64; exec "$0" "$@""#]).arg(exe);
        passes_elsewhere(
            &mut command,
            "a_write_that_the_disk_cuts_short_leaves_nothing_and_loses_nothing",
            folder.path(),
        );
        assert_eq!(names(folder.path()).len(), 3, "two programs and the lock");
    }

    #[test]
    fn processes_that_write_at_once_leave_whole_files_within_the_budget() {
        const EACH: usize = 50_000;
        let budget = 4 * EACH as u64;
        if let Some(folder) = std::env::var_os(FOLDER) {
            let store = Store::open(Path::new(&folder), budget).unwrap();
            for round in 0..15 {
                let program = round % 7;
                store.put(&key(program), &[program; EACH]).unwrap();
                if let Some(content) = store.get(&key((round + 3) % 7)).unwrap() {
                    assert!(content.len() == EACH && content.iter().all(|&byte| byte == (round + 3) % 7));
                }
            }
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let test = "processes_that_write_at_once_leave_whole_files_within_the_budget";
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let exe = std::env::current_exe().unwrap();
                scope.spawn(|| passes_elsewhere(&mut Command::new(exe), test, folder.path()));
            }
        });
        let store = store(folder.path(), budget);
        let files = store.files(|_| true).unwrap();
        assert!(files.iter().map(|file| file.bytes).sum::<u64>() <= budget);
        assert!(files.iter().all(|file| !file.path.to_string_lossy().contains(UNFINISHED)));
    }
}
