//! The structs and functions of the profiler extension, written by hand: the wheel from which `bindings.rs` was generated
//! has no header for them. The layouts are those of `xla/backends/profiler/plugin/profiler_c_api.h` (version 1) and, for
//! [`ProfilerExtension`], of `xla/pjrt/c/pjrt_c_api_profiler_extension.h` (version 1).

use crate::bindings::PJRT_Extension_Base;
use std::ffi::{c_char, c_int, c_void};

/// `PLUGIN_Profiler`: opaque.
#[repr(C)]
pub(crate) struct RawProfiler([u8; 0]);

/// `PLUGIN_Profiler_Error`: opaque.
#[repr(C)]
pub(crate) struct RawError([u8; 0]);

/// `PJRT_Profiler_Extension`, up to the function table. What follows is read by plugins alone.
#[repr(C)]
pub(crate) struct ProfilerExtension {
    pub(crate) base: PJRT_Extension_Base,
    pub(crate) profiler_api: *const ProfilerApi,
}

/// `PLUGIN_Profiler_Api`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ProfilerApi {
    pub(crate) struct_size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) error_destroy: Option<unsafe extern "C" fn(*mut ErrorDestroy)>,
    pub(crate) error_message: Option<unsafe extern "C" fn(*mut ErrorMessage)>,
    pub(crate) error_get_code: Option<unsafe extern "C" fn(*mut ErrorGetCode) -> *mut RawError>,
    pub(crate) create: Option<unsafe extern "C" fn(*mut Create) -> *mut RawError>,
    pub(crate) destroy: Method,
    pub(crate) start: Method,
    pub(crate) stop: Method,
    pub(crate) collect_data: Option<unsafe extern "C" fn(*mut CollectData) -> *mut RawError>,
}

/// A function that takes a profiler alone.
pub(crate) type Method = Option<unsafe extern "C" fn(*mut OfProfiler) -> *mut RawError>;

/// `PLUGIN_Profiler_Error_Destroy_Args`.
#[repr(C)]
pub(crate) struct ErrorDestroy {
    pub(crate) struct_size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) error: *mut RawError,
}

/// `PLUGIN_Profiler_Error_Message_Args`.
#[repr(C)]
pub(crate) struct ErrorMessage {
    pub(crate) struct_size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) error: *const RawError,
    pub(crate) message: *const c_char,
    pub(crate) message_size: usize,
}

/// `PLUGIN_Profiler_Error_GetCode_Args`. Its header size ends with `code`: [`ErrorGetCode::SIZE`].
#[repr(C)]
pub(crate) struct ErrorGetCode {
    pub(crate) struct_size: usize,
    pub(crate) private: *mut c_void,
    pub(crate) error: *const RawError,
    pub(crate) code: c_int,
}

impl ErrorGetCode {
    pub(crate) const SIZE: usize = std::mem::offset_of!(ErrorGetCode, code) + size_of::<c_int>();
}

/// `PLUGIN_Profiler_Create_Args`.
#[repr(C)]
pub(crate) struct Create {
    pub(crate) struct_size: usize,
    pub(crate) options: *const c_char,
    pub(crate) options_size: usize,
    pub(crate) profiler: *mut RawProfiler,
}

/// `PLUGIN_Profiler_Destroy_Args`, `PLUGIN_Profiler_Start_Args` and `PLUGIN_Profiler_Stop_Args`.
#[repr(C)]
pub(crate) struct OfProfiler {
    pub(crate) struct_size: usize,
    pub(crate) profiler: *mut RawProfiler,
}

/// `PLUGIN_Profiler_CollectData_Args`.
#[repr(C)]
pub(crate) struct CollectData {
    pub(crate) struct_size: usize,
    pub(crate) profiler: *mut RawProfiler,
    pub(crate) buffer: *mut u8,
    pub(crate) buffer_size: usize,
}

/// The sizes that libtpu checks, and those that plugins fill, on machines with pointers of 64 bits.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ProfilerExtension>() == 32 && size_of::<ProfilerApi>() == 80);
    assert!(size_of::<ErrorDestroy>() == 24 && size_of::<ErrorMessage>() == 40 && ErrorGetCode::SIZE == 28);
    assert!(size_of::<Create>() == 32 && size_of::<OfProfiler>() == 16 && size_of::<CollectData>() == 32);
};
