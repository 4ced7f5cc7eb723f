//! Safe handles over the PJRT C API: plugins, clients, devices, buffers, executables.
//!
//! This crate is the only one of the project with `unsafe`. It knows the C API, and neither tensors nor graphs nor Burn.
//! Each file owns one noun of the C header and has its name. The rules of the crate:
//!
//! - every C call goes through one function, which sets struct sizes, checks the plugin's function table and frees errors;
//! - every handle has one owner, frees itself and keeps its parents alive; plugins are never unloaded;
//! - handles are `Send` and `Sync`, since PJRT's runtime is thread-safe;
//! - SIGTERM and SIGINT stay the program's, whatever a plugin installs for them;
//! - inputs that are known to kill the process inside a plugin are refused before the call, with a typed error.
//!
//! ```no_run
//! use burn_tpu_pjrt::{Buffer, Client, ClientOptions, CompileOptions, ElementType, ExecuteOptions, Plugin, PluginKind};
//! use burn_tpu_pjrt::{Program, TensorSpec};
//!
//! # fn main() -> Result<(), burn_tpu_pjrt::PjrtError> {
//! let plugin = Plugin::find(PluginKind::Cpu, None)?;
//! let client = Client::new(plugin, &ClientOptions::cpu(1)?)?;
//! let pair = TensorSpec::new(ElementType::F32, [2])?;
//! let text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
//!   %0 = stablehlo.add %x, %x : tensor<2xf32>
//!   return %0 : tensor<2xf32>
//! }";
//! let program = Program::stablehlo(text, [pair.clone()])?;
//! let double = client.compile(&program, &CompileOptions::default())?;
//! let bytes: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! let x = Buffer::from_host(&client.device(0)?, pair, &bytes)?;
//! let y = double.execute_single(&[&x], &ExecuteOptions::default())?;
//! println!("{:?}", y[0].to_host()?);
//! # Ok(())
//! # }
//! ```

// The C header's constants keep their names, so that they can be searched for; rustc warns about them in patterns.
#![allow(non_upper_case_globals, reason = "C constants in patterns keep the header's names")]

mod abi;
mod api;
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    dead_code,
    clippy::all,
    reason = "generated from the C header, whose names and texts these are"
)]
mod bindings;
mod buffer;
mod client;
mod client_options;
mod compile_options;
mod device;
pub mod discovery;
mod element_type;
mod environment;
mod error;
mod event;
mod executable;
mod execute;
mod flags;
mod hlo;
mod key_value;
mod live;
mod loaded_executable;
mod named_value;
pub mod occupancy;
mod plugin;
pub mod presence;
mod process;
mod profiler;
mod profiler_abi;
mod program;
mod program_check;
mod serialized;
mod signals;
mod tensor_spec;
#[doc(hidden)]
pub mod testing;
mod topology;
mod transfer;

pub use buffer::Buffer;
pub use client::Client;
pub use client_options::{ClientOptions, MAX_CPU_DEVICES};
pub use compile_options::{CompileOptions, OptimizationLevel, OverrideValue};
pub use device::{Device, DeviceDescription, Memory, MemoryStats};
pub use discovery::PluginKind;
pub use element_type::ElementType;
pub use environment::{aot_environment, xla_flag_environment};
pub use error::{Code, Fault, PjrtError, Result};
pub use event::Event;
pub use executable::{CompiledMemoryStats, Executable, OptimizedProgram};
pub use execute::{ExecuteOptions, Execution};
pub use flags::check_xla_flags;
pub use hlo::{HloArray, HloCollective, HloInstruction, HloModule};
pub use key_value::KeyValueStore;
pub use live::{LiveHandles, live_buffers, live_clients, live_events, live_handles, live_loaded_executables};
pub use loaded_executable::LoadedExecutable;
pub use named_value::{Attributes, Value};
pub use plugin::{Plugin, Version};
pub use process::{Work, WorkGuard, watch_work};
pub use profiler::Profiler;
pub use program::Program;
pub use serialized::processor;
pub use tensor_spec::{MAX_RANK, TensorSpec};
pub use topology::TopologyDescription;
pub use transfer::{HostRead, HostUse};
