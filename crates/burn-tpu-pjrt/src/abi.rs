//! What the C header defines for each struct and function: name, size, and offset in the function table.
//!
//! The table at the end lists every C function this crate calls. A function that is not listed cannot be called.

use std::mem::{MaybeUninit, offset_of};

use crate::bindings::*;

/// A C struct that starts with `struct_size` and may be all zero (header: "PJRT_STRUCT_SIZE").
///
/// # Safety
/// The all-zero bit pattern is a valid value; `SIZE` is the header's `*_STRUCT_SIZE`, at most the struct's size.
pub(crate) unsafe trait Struct: Sized {
    /// The header's size: up to the end of the last field, without tail padding.
    const SIZE: usize;

    /// The field that plugins check.
    fn size_field(&mut self) -> &mut usize;

    /// A zeroed struct with its size stamped.
    fn new() -> Self {
        // SAFETY: implementors promise that all-zero is valid; the C structs hold integers, raw pointers,
        // `Option<fn>` and unions of these.
        let mut value: Self = unsafe { MaybeUninit::zeroed().assume_init() };
        *value.size_field() = Self::SIZE;
        value
    }
}

/// A table entry's type for functions that return an error.
pub(crate) type Slot<A> = Option<unsafe extern "C" fn(*mut A) -> *mut PJRT_Error>;

/// The argument struct of one C function.
///
/// # Safety
/// `OFFSET` is the byte offset in `PJRT_Api` of an entry whose type is exactly [`Slot<Self>`].
pub(crate) unsafe trait Args: Struct {
    /// The C function's name.
    const CALL: &'static str;
    /// The offset of the function's pointer in the table, in bytes.
    const OFFSET: usize;
}

macro_rules! structs {
    ($($ty:ident = $size:ident;)*) => { $(
        // SAFETY: a bindgen struct of integers, raw pointers, `Option<fn>` and unions of these: zero is valid. The size
        // is the header's constant for this struct.
        unsafe impl Struct for $ty {
            const SIZE: usize = $size as usize;
            fn size_field(&mut self) -> &mut usize {
                &mut self.struct_size
            }
        }
    )* };
}

macro_rules! calls {
    ($($call:ident($args:ident, $size:ident);)*) => {
        structs! { $($args = $size;)* }
        $(
            // SAFETY: the offset is that of the field with the same name; `typed` below fails to compile if that field
            // has another type.
            unsafe impl Args for $args {
                const CALL: &'static str = stringify!($call);
                const OFFSET: usize = offset_of!(PJRT_Api, $call);
            }
            const _: fn(&PJRT_Api) -> Slot<$args> = {
                fn typed(table: &PJRT_Api) -> Slot<$args> { table.$call }
                typed
            };
        )*
    };
}

structs! {
    PJRT_NamedValue = PJRT_NamedValue_STRUCT_SIZE;
    PJRT_Program = PJRT_Program_STRUCT_SIZE;
    PJRT_ExecuteOptions = PJRT_ExecuteOptions_STRUCT_SIZE;
    PJRT_Buffer_MemoryLayout = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
    PJRT_Buffer_MemoryLayout_Tiled = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
    PJRT_Error_Destroy_Args = PJRT_Error_Destroy_Args_STRUCT_SIZE;
    PJRT_Error_Message_Args = PJRT_Error_Message_Args_STRUCT_SIZE;
}

calls! {
    PJRT_Error_GetCode(PJRT_Error_GetCode_Args, PJRT_Error_GetCode_Args_STRUCT_SIZE);
    PJRT_Plugin_Initialize(PJRT_Plugin_Initialize_Args, PJRT_Plugin_Initialize_Args_STRUCT_SIZE);
    PJRT_Plugin_Attributes(PJRT_Plugin_Attributes_Args, PJRT_Plugin_Attributes_Args_STRUCT_SIZE);
    PJRT_Event_Destroy(PJRT_Event_Destroy_Args, PJRT_Event_Destroy_Args_STRUCT_SIZE);
    PJRT_Event_IsReady(PJRT_Event_IsReady_Args, PJRT_Event_IsReady_Args_STRUCT_SIZE);
    PJRT_Event_Error(PJRT_Event_Error_Args, PJRT_Event_Error_Args_STRUCT_SIZE);
    PJRT_Event_Await(PJRT_Event_Await_Args, PJRT_Event_Await_Args_STRUCT_SIZE);
    PJRT_Event_OnReady(PJRT_Event_OnReady_Args, PJRT_Event_OnReady_Args_STRUCT_SIZE);
    PJRT_Client_Create(PJRT_Client_Create_Args, PJRT_Client_Create_Args_STRUCT_SIZE);
    PJRT_Client_Destroy(PJRT_Client_Destroy_Args, PJRT_Client_Destroy_Args_STRUCT_SIZE);
    PJRT_Client_PlatformName(PJRT_Client_PlatformName_Args, PJRT_Client_PlatformName_Args_STRUCT_SIZE);
    PJRT_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args, PJRT_Client_PlatformVersion_Args_STRUCT_SIZE);
    PJRT_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args, PJRT_Client_ProcessIndex_Args_STRUCT_SIZE);
    PJRT_Client_Devices(PJRT_Client_Devices_Args, PJRT_Client_Devices_Args_STRUCT_SIZE);
    PJRT_Client_Compile(PJRT_Client_Compile_Args, PJRT_Client_Compile_Args_STRUCT_SIZE);
    PJRT_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args, PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args, PJRT_DeviceDescription_Id_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args, PJRT_DeviceDescription_ProcessIndex_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args, PJRT_DeviceDescription_Attributes_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args, PJRT_DeviceDescription_Kind_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args, PJRT_DeviceDescription_DebugString_Args_STRUCT_SIZE);
    PJRT_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args, PJRT_DeviceDescription_ToString_Args_STRUCT_SIZE);
    PJRT_Device_GetDescription(PJRT_Device_GetDescription_Args, PJRT_Device_GetDescription_Args_STRUCT_SIZE);
    PJRT_Device_IsAddressable(PJRT_Device_IsAddressable_Args, PJRT_Device_IsAddressable_Args_STRUCT_SIZE);
    PJRT_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args, PJRT_Device_LocalHardwareId_Args_STRUCT_SIZE);
    PJRT_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args, PJRT_Device_AddressableMemories_Args_STRUCT_SIZE);
    PJRT_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args, PJRT_Device_DefaultMemory_Args_STRUCT_SIZE);
    PJRT_Device_MemoryStats(PJRT_Device_MemoryStats_Args, PJRT_Device_MemoryStats_Args_STRUCT_SIZE);
    PJRT_Memory_Id(PJRT_Memory_Id_Args, PJRT_Memory_Id_Args_STRUCT_SIZE);
    PJRT_Memory_Kind(PJRT_Memory_Kind_Args, PJRT_Memory_Kind_Args_STRUCT_SIZE);
    PJRT_Memory_DebugString(PJRT_Memory_DebugString_Args, PJRT_Memory_DebugString_Args_STRUCT_SIZE);
    PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args, PJRT_Executable_Destroy_Args_STRUCT_SIZE);
    PJRT_Executable_Name(PJRT_Executable_Name_Args, PJRT_Executable_Name_Args_STRUCT_SIZE);
    PJRT_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args, PJRT_Executable_NumReplicas_Args_STRUCT_SIZE);
    PJRT_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args, PJRT_Executable_NumPartitions_Args_STRUCT_SIZE);
    PJRT_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args, PJRT_Executable_NumOutputs_Args_STRUCT_SIZE);
    PJRT_Executable_SizeOfGeneratedCodeInBytes(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, PJRT_Executable_SizeOfGeneratedCodeInBytes_Args_STRUCT_SIZE);
    PJRT_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args, PJRT_Executable_GetCostAnalysis_Args_STRUCT_SIZE);
    PJRT_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args, PJRT_Executable_OptimizedProgram_Args_STRUCT_SIZE);
    PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args, PJRT_Executable_Serialize_Args_STRUCT_SIZE);
    PJRT_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args, PJRT_Executable_OutputElementTypes_Args_STRUCT_SIZE);
    PJRT_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args, PJRT_Executable_OutputDimensions_Args_STRUCT_SIZE);
    PJRT_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args, PJRT_Executable_Fingerprint_Args_STRUCT_SIZE);
    PJRT_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args, PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE);
    PJRT_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args, PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args, PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args, PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args, PJRT_LoadedExecutable_AddressableDevices_Args_STRUCT_SIZE);
    PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args, PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE);
    PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args, PJRT_Buffer_Destroy_Args_STRUCT_SIZE);
    PJRT_Buffer_Delete(PJRT_Buffer_Delete_Args, PJRT_Buffer_Delete_Args_STRUCT_SIZE);
    PJRT_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args, PJRT_Buffer_IsDeleted_Args_STRUCT_SIZE);
    PJRT_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args, PJRT_Buffer_CopyToDevice_Args_STRUCT_SIZE);
    PJRT_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args, PJRT_Buffer_CopyToMemory_Args_STRUCT_SIZE);
    PJRT_Buffer_Memory(PJRT_Buffer_Memory_Args, PJRT_Buffer_Memory_Args_STRUCT_SIZE);
    PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args, PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE);
    PJRT_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args, PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE);
    PJRT_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args, PJRT_Buffer_OnDeviceSizeInBytes_Args_STRUCT_SIZE);
    PJRT_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args, PJRT_Buffer_UnsafePointer_Args_STRUCT_SIZE);
    PJRT_Buffer_ElementType(PJRT_Buffer_ElementType_Args, PJRT_Buffer_ElementType_Args_STRUCT_SIZE);
    PJRT_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args, PJRT_Buffer_Dimensions_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args, PJRT_TopologyDescription_Create_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args, PJRT_TopologyDescription_Destroy_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args, PJRT_TopologyDescription_PlatformName_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args, PJRT_TopologyDescription_PlatformVersion_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args, PJRT_TopologyDescription_GetDeviceDescriptions_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args, PJRT_TopologyDescription_Serialize_Args_STRUCT_SIZE);
    PJRT_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args, PJRT_TopologyDescription_Attributes_Args_STRUCT_SIZE);
    PJRT_Compile(PJRT_Compile_Args, PJRT_Compile_Args_STRUCT_SIZE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_match_the_header_and_fit_the_structs() {
        // The minimum sizes that the plugins demand (API 0.81 to 0.116).
        assert_eq!(PJRT_Client_Create_Args::SIZE, 88);
        assert_eq!(PJRT_ExecuteOptions::SIZE, 112);
        assert_eq!(PJRT_Executable_GetCompiledMemoryStats_Args::SIZE, 112);
        assert_eq!(PJRT_Device_MemoryStats_Args::SIZE, 185);
        assert_eq!(size_of::<PJRT_Api>(), PJRT_Api_STRUCT_SIZE as usize);
        assert!(PJRT_Device_MemoryStats_Args::SIZE <= size_of::<PJRT_Device_MemoryStats_Args>());
    }

    #[test]
    fn new_is_zero_except_for_the_stamped_size() {
        let args = PJRT_Client_Create_Args::new();
        assert_eq!(args.struct_size, PJRT_Client_Create_Args::SIZE);
        assert!(args.client.is_null() && args.create_options.is_null() && args.extension_start.is_null());
        assert!(args.kv_get_callback.is_none());
    }
}
