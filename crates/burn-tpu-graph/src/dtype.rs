//! Element types of the graph: those of StableHLO that Burn has a name for.

/// The element type of a tensor in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the usual name of its type")]
#[repr(u8)]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    BF16,
    F16,
    F32,
    F64,
    /// Two f32, the real and the imaginary part. Used only between `fft`, `complex`, `real` and `imag`.
    C64,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 14] = [
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::BF16,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::C64,
    ];

    /// Returns the size of one element in a host or device buffer, in bytes. A bool takes one byte.
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::BF16 | DType::F16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 | DType::C64 => 8,
        }
    }

    /// Returns the type's name in StableHLO text: `i1`, `ui8`, `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "i1",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "ui8",
            DType::U16 => "ui16",
            DType::U32 => "ui32",
            DType::U64 => "ui64",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::C64 => "complex<f32>",
        }
    }

    /// Returns whether this is a real floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::BF16 | DType::F16 | DType::F32 | DType::F64)
    }

    /// Returns whether this is a 16-bit float, whose reductions, norms and dots accumulate in f32.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::BF16 | DType::F16)
    }

    /// Returns whether this is a signed or unsigned integer. Bool is not an integer.
    pub const fn is_int(self) -> bool {
        self.is_signed_int() || self.is_unsigned_int()
    }

    /// Returns whether this is a two's-complement integer.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Returns whether this is an unsigned integer.
    pub const fn is_unsigned_int(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// Returns the type in which values of this type are accumulated: f32 for 16-bit floats, otherwise the type itself.
    pub const fn accumulator(self) -> DType {
        if self.is_half() { DType::F32 } else { self }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of element types that an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeClass {
    /// bf16, f16, f32, f64.
    Float,
    /// Every signed and unsigned integer.
    Int,
    /// Integers and floats.
    Numeric,
    /// Floats and signed integers.
    Signed,
    /// Integers and bool.
    Bits,
    /// Integers, floats and bool.
    Any,
}

impl DTypeClass {
    /// Returns whether `dtype` belongs to the class.
    pub const fn contains(self, dtype: DType) -> bool {
        let bool_ = matches!(dtype, DType::Bool);
        match self {
            DTypeClass::Float => dtype.is_float(),
            DTypeClass::Int => dtype.is_int(),
            DTypeClass::Numeric => dtype.is_int() || dtype.is_float(),
            DTypeClass::Signed => dtype.is_signed_int() || dtype.is_float(),
            DTypeClass::Bits => dtype.is_int() || bool_,
            DTypeClass::Any => !matches!(dtype, DType::C64),
        }
    }
}
