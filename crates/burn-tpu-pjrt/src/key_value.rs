//! A key-value store through which the clients of several processes find each other (header: "PJRT_KeyValueGetCallback" and
//! its kin). The CUDA plugin asks for one; libtpu finds its hosts by itself, and the CPU plugin ignores it.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::api::slice;
use crate::bindings::*;

/// Values by key, shared by all processes. A plugin calls it on its own threads, some of which wait in
/// [`KeyValueStore::get`] while others put what these wait for.
pub trait KeyValueStore: Send + Sync {
    /// Puts a value.
    ///
    /// # Errors
    /// A text for the plugin's own error.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String>;

    /// Returns a value; `None` if it was not put yet.
    ///
    /// # Errors
    /// A text for the plugin's own error.
    fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String>;

    /// Waits for a value; `None` if it was not put in time.
    ///
    /// # Errors
    /// A text for the plugin's own error.
    fn get(&self, key: &[u8], timeout: Duration) -> Result<Option<Vec<u8>>, String>;
}

/// A store as a plugin calls it. It lives as long as the client that got it.
pub(crate) struct KeyValues(Box<Arc<dyn KeyValueStore>>);

impl std::fmt::Debug for KeyValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyValues")
    }
}

impl KeyValues {
    pub(crate) fn new(store: Arc<dyn KeyValueStore>) -> KeyValues {
        KeyValues(Box::new(store))
    }

    /// Sets the callbacks. The client may call them as long as `self` lives.
    pub(crate) fn install(&self, args: &mut PJRT_Client_Create_Args) {
        // The fields are mutable pointers; the callbacks only read.
        let store: *const Arc<dyn KeyValueStore> = &*self.0;
        let user_arg: *mut c_void = store.cast_mut().cast();
        args.kv_get_callback = Some(get);
        args.kv_get_user_arg = user_arg;
        args.kv_put_callback = Some(put);
        args.kv_put_user_arg = user_arg;
        args.kv_try_get_callback = Some(try_get);
        args.kv_try_get_user_arg = user_arg;
    }
}

/// A status code and a text, of which the plugin makes an error of its own.
type Failure = (PJRT_Error_Code, String);

unsafe extern "C" fn get(args: *mut PJRT_KeyValueGetCallback_Args) -> *mut PJRT_Error {
    // SAFETY: the header passes a live struct that nobody else uses during the call.
    let args = unsafe { &mut *args };
    let timeout = Duration::from_millis(u64::try_from(args.timeout_in_ms).unwrap_or(0));
    // SAFETY: `install` set the argument, and the client that calls this keeps the store.
    let store = unsafe { store(args.user_arg) };
    // SAFETY: the key is readable during the call.
    let key = unsafe { slice(args.key.cast::<u8>(), args.key_size) };
    let found = caught(|| {
        let late = || (PJRT_Error_Code_DEADLINE_EXCEEDED, format!("no value of {} came in {timeout:?}", shown(key)));
        store.get(key, timeout).map_err(unavailable)?.ok_or_else(late)
    });
    match found {
        Ok(value) => {
            (args.value, args.value_size) = lend(value);
            args.value_deleter_callback = Some(take_back);
            null_mut()
        }
        // SAFETY: the header passes the plugin's function for errors.
        Err(failure) => unsafe { error(args.callback_error, &failure) },
    }
}

unsafe extern "C" fn try_get(args: *mut PJRT_KeyValueTryGetCallback_Args) -> *mut PJRT_Error {
    // SAFETY: as in `get`.
    let args = unsafe { &mut *args };
    // SAFETY: as in `get`.
    let store = unsafe { store(args.user_arg) };
    // SAFETY: as in `get`.
    let key = unsafe { slice(args.key.cast::<u8>(), args.key_size) };
    let found = caught(|| {
        let none = || (PJRT_Error_Code_NOT_FOUND, format!("there is no value of {}", shown(key)));
        store.try_get(key).map_err(unavailable)?.ok_or_else(none)
    });
    match found {
        Ok(value) => {
            (args.value, args.value_size) = lend(value);
            args.value_deleter_callback = Some(take_back);
            null_mut()
        }
        // SAFETY: as in `get`.
        Err(failure) => unsafe { error(args.callback_error, &failure) },
    }
}

unsafe extern "C" fn put(args: *mut PJRT_KeyValuePutCallback_Args) -> *mut PJRT_Error {
    // SAFETY: as in `get`.
    let args = unsafe { &mut *args };
    // SAFETY: as in `get`.
    let store = unsafe { store(args.user_arg) };
    // SAFETY: as in `get`.
    let key = unsafe { slice(args.key.cast::<u8>(), args.key_size) };
    // SAFETY: the value is readable during the call.
    let value = unsafe { slice(args.value.cast::<u8>(), args.value_size) };
    match caught(|| store.put(key, value).map_err(unavailable)) {
        Ok(()) => null_mut(),
        // SAFETY: as in `get`.
        Err(failure) => unsafe { error(args.callback_error, &failure) },
    }
}

/// # Safety
/// `user_arg` was set by [`KeyValues::install`], and the `KeyValues` lives.
unsafe fn store<'a>(user_arg: *mut c_void) -> &'a dyn KeyValueStore {
    // SAFETY: it points to the boxed `Arc`, which is not written while it lives.
    let store = unsafe { &*user_arg.cast::<Arc<dyn KeyValueStore>>() };
    &**store
}

/// Runs a callback's work. A panic must not cross into C.
fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let panicked = |_| Err((PJRT_Error_Code_INTERNAL, "the key-value store panicked".to_owned()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

fn unavailable(text: String) -> Failure {
    (PJRT_Error_Code_UNAVAILABLE, text)
}

fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(key))
}

/// Returns an error that the plugin makes; null, which is success, if it passed no function for that.
///
/// # Safety
/// `make` is null or points to the plugin's function.
unsafe fn error(make: *mut PJRT_CallbackError, (code, text): &Failure) -> *mut PJRT_Error {
    // SAFETY: the caller promises that it can be read if it is not null.
    let Some(make) = (unsafe { make.as_ref() }).copied().flatten() else { return null_mut() };
    // SAFETY: the function copies the text during the call (header: `PJRT_CallbackError`).
    unsafe { make(*code, text.as_ptr().cast(), text.len()) }
}

/// The values that plugins hold, by address. They give them back with [`take_back`], which is told the address alone.
static LENT: Mutex<BTreeMap<usize, Box<[u8]>>> = Mutex::new(BTreeMap::new());

fn lent() -> MutexGuard<'static, BTreeMap<usize, Box<[u8]>>> {
    LENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns address and size of a value that lives until it is taken back.
fn lend(mut value: Vec<u8>) -> (*mut c_char, usize) {
    let size = value.len();
    // An empty allocation has no address of its own.
    value.push(0);
    let mut value = value.into_boxed_slice();
    let address = value.as_mut_ptr();
    lent().insert(address.addr(), value);
    (address.cast(), size)
}

unsafe extern "C" fn take_back(value: *mut c_char) {
    lent().remove(&value.addr());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Struct;

    /// Values in memory, and what goes wrong with some keys.
    #[derive(Default)]
    struct Memory(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

    impl KeyValueStore for Memory {
        fn put(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
            match key {
                b"broken" => Err("the store is broken".into()),
                b"panics" => panic!("as the test wants"),
                _ => {
                    self.0.lock().unwrap().insert(key.to_vec(), value.to_vec());
                    Ok(())
                }
            }
        }

        fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
            Ok(self.0.lock().unwrap().get(key).cloned())
        }

        fn get(&self, key: &[u8], _: Duration) -> Result<Option<Vec<u8>>, String> {
            self.try_get(key)
        }
    }

    /// What a plugin makes of an error.
    unsafe extern "C" fn make_error(code: PJRT_Error_Code, text: *const c_char, size: usize) -> *mut PJRT_Error {
        // SAFETY: the text is readable during the call.
        let text = unsafe { crate::api::string(text, size) };
        Box::into_raw(Box::new((code, text))).cast()
    }

    fn taken(error: *mut PJRT_Error) -> Option<(PJRT_Error_Code, String)> {
        // SAFETY: `make_error` made it, and it is taken once.
        (!error.is_null()).then(|| *unsafe { Box::from_raw(error.cast::<(PJRT_Error_Code, String)>()) })
    }

    /// Calls the callbacks as a plugin does.
    struct Caller(PJRT_Client_Create_Args, PJRT_CallbackError);

    impl Caller {
        fn new(store: &KeyValues) -> Caller {
            let mut args = PJRT_Client_Create_Args::new();
            store.install(&mut args);
            Caller(args, Some(make_error))
        }

        fn put(&mut self, key: &[u8], value: &[u8]) -> Option<(PJRT_Error_Code, String)> {
            // SAFETY: the struct holds numbers, pointers and functions: zero is valid.
            let mut args: PJRT_KeyValuePutCallback_Args = unsafe { std::mem::zeroed() };
            (args.key, args.key_size) = (key.as_ptr().cast(), key.len());
            (args.value, args.value_size) = (value.as_ptr().cast(), value.len());
            (args.callback_error, args.user_arg) = (&mut self.1, self.0.kv_put_user_arg);
            // SAFETY: all fields are as the header says.
            taken(unsafe { self.0.kv_put_callback.unwrap()(&mut args) })
        }

        fn get(&mut self, key: &[u8]) -> Result<Vec<u8>, (PJRT_Error_Code, String)> {
            // SAFETY: as in `put`.
            let mut args: PJRT_KeyValueGetCallback_Args = unsafe { std::mem::zeroed() };
            (args.key, args.key_size, args.timeout_in_ms) = (key.as_ptr().cast(), key.len(), 5);
            (args.callback_error, args.user_arg) = (&mut self.1, self.0.kv_get_user_arg);
            // SAFETY: as in `put`.
            let error = taken(unsafe { self.0.kv_get_callback.unwrap()(&mut args) });
            error.map_or_else(|| Ok(read(args.value, args.value_size, args.value_deleter_callback)), Err)
        }

        fn try_get(&mut self, key: &[u8]) -> Result<Vec<u8>, (PJRT_Error_Code, String)> {
            // SAFETY: as in `put`.
            let mut args: PJRT_KeyValueTryGetCallback_Args = unsafe { std::mem::zeroed() };
            (args.key, args.key_size) = (key.as_ptr().cast(), key.len());
            (args.callback_error, args.user_arg) = (&mut self.1, self.0.kv_try_get_user_arg);
            // SAFETY: as in `put`.
            let error = taken(unsafe { self.0.kv_try_get_callback.unwrap()(&mut args) });
            error.map_or_else(|| Ok(read(args.value, args.value_size, args.value_deleter_callback)), Err)
        }
    }

    /// Copies a value and gives it back.
    fn read(value: *mut c_char, size: usize, back: PJRT_KeyValueGetCallback_ValueDeleter) -> Vec<u8> {
        // SAFETY: the callback returned this value, which lives until it is given back.
        let copy = unsafe { slice(value.cast::<u8>(), size) }.to_vec();
        assert!(lent().contains_key(&value.addr()));
        // SAFETY: it is given back once.
        unsafe { back.unwrap()(value) };
        copy
    }

    #[test]
    fn a_plugin_puts_and_gets_values() {
        let (first, second) = {
            let store: Arc<dyn KeyValueStore> = Arc::new(Memory::default());
            (KeyValues::new(Arc::clone(&store)), KeyValues::new(store))
        };
        let (mut first, mut second) = (Caller::new(&first), Caller::new(&second));
        for value in [&b"id\0of\xffnccl"[..], b""] {
            assert_eq!(first.put(b"key\0", value), None);
            assert_eq!(second.get(b"key\0"), Ok(value.to_vec()));
            assert_eq!(second.try_get(b"key\0"), Ok(value.to_vec()));
        }
    }

    #[test]
    fn failures_become_errors_of_the_plugin() {
        let store = KeyValues::new(Arc::new(Memory::default()));
        let mut plugin = Caller::new(&store);
        let code = |result: Result<Vec<u8>, (PJRT_Error_Code, String)>| result.unwrap_err();
        let (late, late_text) = code(plugin.get(b"none"));
        assert_eq!(late, PJRT_Error_Code_DEADLINE_EXCEEDED);
        assert!(late_text.contains("\"none\""), "{late_text}");
        assert_eq!(code(plugin.try_get(b"none")).0, PJRT_Error_Code_NOT_FOUND);
        let broken = (PJRT_Error_Code_UNAVAILABLE, "the store is broken".to_owned());
        assert_eq!(plugin.put(b"broken", b""), Some(broken));
        assert_eq!(plugin.put(b"panics", b"").unwrap().0, PJRT_Error_Code_INTERNAL);
        // A plugin that takes no errors gets none.
        plugin.1 = None;
        assert_eq!(plugin.put(b"broken", b""), None);
    }
}
