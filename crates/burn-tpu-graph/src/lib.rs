//! The graph that burn-tpu records, from op table to StableHLO text.
//!
//! Owns: the op table ([`Op`]), checked builders ([`Graph`]), shape and element-type inference, the verifier, canonical
//! programs and their hash ([`Program`]), the readable text form, and the lowering to StableHLO. May not know: PJRT,
//! Burn's traits, files, threads. Nothing here does I/O.
#![forbid(unsafe_code)]

mod alias;
mod bake;
mod beginning;
mod build;
#[cfg(any(test, feature = "testing"))]
pub mod corpus;
pub mod cost;
mod custom_call;
mod dtype;
mod error;
pub mod family;
mod graph;
mod infer;
mod literal;
pub mod lower;
mod mesh;
pub mod op;
mod pieces;
mod placement;
mod program;
mod rebuild;
mod role;
mod share;
mod split;
mod summary;
mod text;
mod types;
mod undivided;
mod verify;

pub use beginning::{Beginning, Maker, Starts};
pub use build::Builder;
pub use custom_call::{CallForm, CustomCall, KernelCall, KernelCost, Partition, Parts, StableHlo, custom_calls};
pub use dtype::{DType, DTypeClass};
pub use error::{GraphError, Result};
pub use graph::{Graph, Label, Node, NodeId, Operands};
pub use literal::{Literal, LiteralData, Number};
pub use lower::{Argument, LowerOptions, Lowered, lower, lower_with};
pub use mesh::{Axis, DimAxes, Mesh, Sharding};
pub use op::Op;
pub use pieces::{Piece, PieceInput, PieceValue, Pieces};
pub use placement::{Arrival, Placement};
pub use program::{Bindings, Program, use_counts};
pub use rebuild::{Rebuild, Renaming};
pub use role::Role;
pub use split::{Source, Split, Transfer};
pub use summary::Summary;
pub use types::{Dims, TensorType};
pub use undivided::{Undivided, UndividedOutput};
pub use verify::{VerifyError, verify};
