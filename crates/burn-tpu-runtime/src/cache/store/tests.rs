use super::*;
use crate::cache::key::CompileEnvironment;

const HOUR: Duration = Duration::from_secs(3600);

fn key(program: u8) -> Key {
    CompileEnvironment::default().key([program; 32], [0; 32])
}

/// Returns the key of the same program on another platform.
fn key_on(program: u8, platform: &str) -> Key {
    CompileEnvironment { platform: platform.into(), ..CompileEnvironment::default() }.key([program; 32], [0; 32])
}

fn store(folder: &Path, budget_bytes: u64) -> Store {
    Store { lock_wait: Duration::ZERO, ..Store::open(folder, budget_bytes).expect("the folder is private") }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Sets the time of a file's last use to `age` ago.
fn age(store: &Store, key: &Key, age: Duration) {
    let file = File::options().write(true).open(store.path(key)).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn a_stored_file_is_returned_for_its_key_only() {
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
fn the_least_recently_used_files_are_evicted_first_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let each = (key(0).head().len() + 100) as u64;
    let store = store(folder.path(), 3 * each);
    for program in 1..=3 {
        store.put(&key(program), &[program; 100]).unwrap();
        age(&store, &key(program), HOUR * (10 - u32::from(program)));
    }
    // The oldest file is read, so the second one is now the next to be evicted.
    assert!(store.get(&key(1)).unwrap().is_some());
    assert_eq!(store.put(&key(4), &[4; 100]).unwrap(), Some(1));
    let left: Vec<u8> = (1..=4).filter(|&program| store.get(&key(program)).unwrap().is_some()).collect();
    assert_eq!(left, [1, 3, 4]);
    assert_eq!(store.put(&key(5), &vec![5; 4 * each as usize]).unwrap(), None, "more than the limit of the folder");
    assert_eq!(store.put(&key(5), &vec![5; 2 * each as usize]).unwrap(), Some(3));
    let bytes: u64 = store.files(|name| name.ends_with(SUFFIX)).unwrap().iter().map(|file| file.bytes).sum();
    assert!(bytes <= 3 * each, "{bytes}");
}

#[test]
fn truncated_damaged_and_foreign_files_give_different_errors() {
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
fn a_lock_of_another_process_blocks_writers_but_not_readers() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), 1 << 20);
    store.put(&key(1), b"one").unwrap();
    let held = File::open(folder.path().join(LOCK)).unwrap();
    held.lock().unwrap();
    assert!(matches!(store.put(&key(2), b"two").unwrap_err(), StoreError::Locked { .. }));
    assert_eq!(store.get(&key(1)).unwrap().unwrap(), b"one");
    held.unlock().unwrap();
    store.put(&key(2), b"two").unwrap();
    assert_eq!(names(folder.path()).len(), 3, "two programs and the lock: no unfinished file remains");
}

#[test]
fn only_old_unfinished_files_are_removed() {
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
    fn a_folder_or_file_that_other_users_can_write_is_rejected() {
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

    /// The folder for the tests below, which run in a second process.
    const FOLDER: &str = "BURN_TPU_TEST_STORE";

    /// Runs `test` again in the process of `command`.
    fn passes_in_another_process(command: &mut Command, test: &str, folder: &Path) {
        command.arg(format!("cache::store::tests::unix::{test}")).args(["--exact", "--nocapture"]).env(FOLDER, folder);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    /// Root may write anywhere, so a root process runs the test as another user. That user trusts root's files too.
    #[test]
    fn a_read_only_folder_is_read_and_not_written() {
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
        let test = "a_read_only_folder_is_read_and_not_written";
        let mut command = Command::new(std::env::current_exe().unwrap());
        if rustix::process::geteuid().is_root() {
            // `nobody` on every Linux.
            command.uid(65534).gid(65534);
        }
        passes_in_another_process(&mut command, test, folder.path());
        chmod(folder.path(), 0o755);
    }

    /// A limit on file sizes interrupts a write, as a full disk does.
    #[test]
    fn an_interrupted_write_leaves_no_file_and_loses_no_file() {
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
        // 64 blocks of 512 bytes. The signal is ignored, so that the write fails instead of ending the process.
        command.args(["-c", r#"trap "" XFSZ; ulimit -f 64; exec "$0" "$@""#]).arg(exe);
        passes_in_another_process(&mut command, "an_interrupted_write_leaves_no_file_and_loses_no_file", folder.path());
        assert_eq!(names(folder.path()).len(), 3, "two programs and the lock");
    }

    #[test]
    fn concurrent_writers_leave_complete_files_within_the_budget() {
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
        let test = "concurrent_writers_leave_complete_files_within_the_budget";
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let exe = std::env::current_exe().unwrap();
                scope.spawn(|| passes_in_another_process(&mut Command::new(exe), test, folder.path()));
            }
        });
        let store = store(folder.path(), budget);
        let files = store.files(|_| true).unwrap();
        assert!(files.iter().map(|file| file.bytes).sum::<u64>() <= budget);
        assert!(files.iter().all(|file| !file.path.to_string_lossy().contains(UNFINISHED)));
    }
}
