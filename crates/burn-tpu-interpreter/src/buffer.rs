//! Elements in memory: one flat array per value, and the element types it can hold.
//!
//! Owns: [`Buffer`], the [`Element`] trait and the macros that call a generic function with an element type. May not
//! know: dims, ops.

use burn_tpu_graph::DType;
use half::{bf16, f16};
use std::sync::Arc;

/// Elements of one type with a shared owner; a unique owner writes in place.
pub(super) type Flat<T> = Arc<Vec<T>>;

/// A complex number of two f32.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct C64 {
    pub(super) re: f32,
    pub(super) im: f32,
}

/// An element type of a buffer.
pub(super) trait Element: Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The graph's name of the type.
    const DTYPE: DType;

    fn wrap(flat: Flat<Self>) -> Buffer;
    fn unwrap(buffer: &Buffer) -> Option<&Flat<Self>>;
    fn unwrap_mut(buffer: &mut Buffer) -> Option<&mut Flat<Self>>;
    fn take(buffer: Buffer) -> Option<Flat<Self>>;

    /// Reads row-major little-endian elements; bytes beyond the last whole element are ignored.
    fn read(bytes: &[u8]) -> Vec<Self>;
    fn write(elements: &[Self]) -> Vec<u8>;
}

macro_rules! buffers {
    ($($variant:ident $ty:ty, $size:literal, $read:expr, $write:expr;)*) => {
        /// The elements of a value, by type.
        #[derive(Clone, Debug)]
        pub(super) enum Buffer { $($variant(Flat<$ty>),)* }

        impl Buffer {
            /// Returns the element type.
            pub(super) fn dtype(&self) -> DType {
                match self { $(Buffer::$variant(_) => DType::$variant,)* }
            }

            /// Returns the number of elements of the buffer, which may be more than the number of elements of a value.
            pub(super) fn len(&self) -> usize {
                match self { $(Buffer::$variant(flat) => flat.len(),)* }
            }
        }

        $(impl Element for $ty {
            const DTYPE: DType = DType::$variant;

            fn wrap(flat: Flat<Self>) -> Buffer {
                Buffer::$variant(flat)
            }

            fn unwrap(buffer: &Buffer) -> Option<&Flat<Self>> {
                if let Buffer::$variant(flat) = buffer { Some(flat) } else { None }
            }

            fn unwrap_mut(buffer: &mut Buffer) -> Option<&mut Flat<Self>> {
                if let Buffer::$variant(flat) = buffer { Some(flat) } else { None }
            }

            fn take(buffer: Buffer) -> Option<Flat<Self>> {
                if let Buffer::$variant(flat) = buffer { Some(flat) } else { None }
            }

            fn read(bytes: &[u8]) -> Vec<Self> {
                let read = typed::<[u8; $size], $ty, _>($read);
                bytes.chunks_exact($size).map(|c| read(<[u8; $size]>::try_from(c).unwrap_or_default())).collect()
            }

            fn write(elements: &[Self]) -> Vec<u8> {
                let write = typed::<$ty, [u8; $size], _>($write);
                let mut bytes = vec![0; elements.len() * $size];
                bytes.chunks_exact_mut($size).zip(elements).for_each(|(c, &v)| c.copy_from_slice(&write(v)));
                bytes
            }
        })*
    };
}

/// Names the types of a function without making it a pointer, which would be called for every element.
fn typed<A, R, F: Fn(A) -> R>(function: F) -> F {
    function
}

buffers! {
    Bool bool, 1, |[byte]| byte != 0, |v| [u8::from(v)];
    I8 i8, 1, i8::from_le_bytes, i8::to_le_bytes;
    I16 i16, 2, i16::from_le_bytes, i16::to_le_bytes;
    I32 i32, 4, i32::from_le_bytes, i32::to_le_bytes;
    I64 i64, 8, i64::from_le_bytes, i64::to_le_bytes;
    U8 u8, 1, u8::from_le_bytes, u8::to_le_bytes;
    U16 u16, 2, u16::from_le_bytes, u16::to_le_bytes;
    U32 u32, 4, u32::from_le_bytes, u32::to_le_bytes;
    U64 u64, 8, u64::from_le_bytes, u64::to_le_bytes;
    BF16 bf16, 2, bf16::from_le_bytes, bf16::to_le_bytes;
    F16 f16, 2, f16::from_le_bytes, f16::to_le_bytes;
    F32 f32, 4, f32::from_le_bytes, f32::to_le_bytes;
    F64 f64, 8, f64::from_le_bytes, f64::to_le_bytes;
    C64 C64, 8, complex_from_le_bytes, complex_to_le_bytes;
}

fn complex_from_le_bytes([a, b, c, d, e, f, g, h]: [u8; 8]) -> C64 {
    C64 { re: f32::from_le_bytes([a, b, c, d]), im: f32::from_le_bytes([e, f, g, h]) }
}

fn complex_to_le_bytes(v: C64) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (v.re.to_le_bytes(), v.im.to_le_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Runs the body with the alias `$T` for the Rust type of `$dtype`.
macro_rules! dispatch {
    ($dtype:expr, $T:ident => $body:expr) => {
        dispatch!(@ $dtype, $T => $body;
            Bool bool, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64,
            BF16 half::bf16, F16 half::f16, F32 f32, F64 f64, C64 $crate::buffer::C64)
    };
    (@ $dtype:expr, $T:ident => $body:expr; $($variant:ident $ty:ty),*) => {
        match $dtype { $(burn_tpu_graph::DType::$variant => { type $T = $ty; $body })* }
    };
}

/// [`dispatch!`] over the types before the semicolon; those after it are rejected.
macro_rules! dispatch_some {
    ($dtype:expr, $T:ident => $body:expr; $($variant:ident $ty:ty),*; $($rejected:ident),*) => {
        match $dtype {
            $(burn_tpu_graph::DType::$variant => { type $T = $ty; $body })*
            $(burn_tpu_graph::DType::$rejected)|* => Err(format!("takes no {} elements", $dtype).into()),
        }
    };
}

/// [`dispatch!`] over the types that ops compute in: integers, f32 and f64. The caller has widened 16-bit floats;
/// bool and complex numbers are rejected.
macro_rules! dispatch_numeric {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::buffer::dispatch_some!($dtype, $T => $body;
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64;
            Bool, BF16, F16, C64)
    };
}

/// [`dispatch!`] over the integers.
macro_rules! dispatch_integers {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::buffer::dispatch_some!($dtype, $T => $body;
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64;
            Bool, BF16, F16, F32, F64, C64)
    };
}

/// [`dispatch!`] over the types that reductions combine: those of [`dispatch_numeric!`] and bool.
macro_rules! dispatch_combined {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::buffer::dispatch_some!($dtype, $T => $body;
            Bool bool, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F32 f32, F64 f64;
            BF16, F16, C64)
    };
}

pub(super) use {dispatch, dispatch_combined, dispatch_integers, dispatch_numeric, dispatch_some};
