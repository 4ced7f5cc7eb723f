//! The element types of buffers, mapped one to one to the C enum `PJRT_Buffer_Type`.

use std::fmt;

use crate::bindings::*;

macro_rules! element_types {
    ($($name:ident = $raw:ident, $bytes:literal, $text:literal, $doc:literal;)*) => {
        /// The type of a buffer's elements (header: `PJRT_Buffer_Type`).
        ///
        /// Types smaller than a byte and tokens have no entry: on the host, their elements do not each fill whole
        /// bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ElementType { $(#[doc = $doc] $name,)* }

        impl ElementType {
            /// Every element type.
            pub const ALL: &'static [ElementType] = &[$(ElementType::$name),*];

            /// Returns the number of bytes per element, on the host.
            pub const fn byte_size(self) -> usize {
                match self { $(ElementType::$name => $bytes,)* }
            }

            /// Returns the name in program text, such as `f32` or `i1`.
            pub const fn name(self) -> &'static str {
                match self { $(ElementType::$name => $text,)* }
            }

            pub(crate) const fn to_raw(self) -> PJRT_Buffer_Type {
                match self { $(ElementType::$name => $raw,)* }
            }

            pub(crate) const fn from_raw(raw: PJRT_Buffer_Type) -> Option<ElementType> {
                match raw { $($raw => Some(ElementType::$name),)* _ => None }
            }
        }
    };
}

element_types! {
    Pred = PJRT_Buffer_Type_PRED, 1, "i1", "Booleans, one byte each on the host.";
    S8 = PJRT_Buffer_Type_S8, 1, "i8", "8-bit signed integers.";
    S16 = PJRT_Buffer_Type_S16, 2, "i16", "16-bit signed integers.";
    S32 = PJRT_Buffer_Type_S32, 4, "i32", "32-bit signed integers.";
    S64 = PJRT_Buffer_Type_S64, 8, "i64", "64-bit signed integers.";
    U8 = PJRT_Buffer_Type_U8, 1, "ui8", "8-bit unsigned integers.";
    U16 = PJRT_Buffer_Type_U16, 2, "ui16", "16-bit unsigned integers.";
    U32 = PJRT_Buffer_Type_U32, 4, "ui32", "32-bit unsigned integers.";
    U64 = PJRT_Buffer_Type_U64, 8, "ui64", "64-bit unsigned integers.";
    F16 = PJRT_Buffer_Type_F16, 2, "f16", "IEEE half precision.";
    BF16 = PJRT_Buffer_Type_BF16, 2, "bf16", "The upper half of an IEEE single.";
    F32 = PJRT_Buffer_Type_F32, 4, "f32", "IEEE single precision.";
    F64 = PJRT_Buffer_Type_F64, 8, "f64", "IEEE double precision.";
    C64 = PJRT_Buffer_Type_C64, 8, "complex<f32>", "Two `f32`: real, imaginary.";
    C128 = PJRT_Buffer_Type_C128, 16, "complex<f64>", "Two `f64`: real, imaginary.";
    F8E5M2 = PJRT_Buffer_Type_F8E5M2, 1, "f8E5M2", "8-bit float, 5 exponent bits.";
    F8E4M3FN = PJRT_Buffer_Type_F8E4M3FN, 1, "f8E4M3FN", "8-bit float, 4 exponent bits, no infinities.";
    F8E4M3B11FNUZ = PJRT_Buffer_Type_F8E4M3B11FNUZ, 1, "f8E4M3B11FNUZ", "8-bit float, exponent bias 11.";
    F8E5M2FNUZ = PJRT_Buffer_Type_F8E5M2FNUZ, 1, "f8E5M2FNUZ", "8-bit float, 5 exponent bits, no negative zero.";
    F8E4M3FNUZ = PJRT_Buffer_Type_F8E4M3FNUZ, 1, "f8E4M3FNUZ", "8-bit float, 4 exponent bits, no negative zero.";
    F8E4M3 = PJRT_Buffer_Type_F8E4M3, 1, "f8E4M3", "8-bit float, 4 exponent bits, IEEE-like.";
    F8E3M4 = PJRT_Buffer_Type_F8E3M4, 1, "f8E3M4", "8-bit float, 3 exponent bits.";
    F8E8M0FNU = PJRT_Buffer_Type_F8E8M0FNU, 1, "f8E8M0FNU", "8-bit power of two.";
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The values of the C enum that this crate leaves out.
    const LEFT_OUT: [PJRT_Buffer_Type; 7] = [
        PJRT_Buffer_Type_INVALID,
        PJRT_Buffer_Type_S2,
        PJRT_Buffer_Type_U2,
        PJRT_Buffer_Type_S4,
        PJRT_Buffer_Type_U4,
        PJRT_Buffer_Type_TOKEN,
        PJRT_Buffer_Type_F4E2M1FN,
    ];

    #[test]
    fn every_c_value_maps_to_one_type_and_back_or_is_left_out_by_name() {
        for raw in PJRT_Buffer_Type_INVALID..=PJRT_Buffer_Type_F4E2M1FN {
            match ElementType::from_raw(raw) {
                Some(element_type) => assert_eq!(element_type.to_raw(), raw),
                None => assert!(LEFT_OUT.contains(&raw), "C value {raw} is unknown"),
            }
        }
        assert_eq!(ElementType::from_raw(PJRT_Buffer_Type_F4E2M1FN + 1), None);
    }

    #[test]
    fn every_type_maps_to_its_own_c_value_and_name() {
        let raws: HashSet<_> = ElementType::ALL.iter().map(|element_type| element_type.to_raw()).collect();
        let names: HashSet<_> = ElementType::ALL.iter().map(|element_type| element_type.name()).collect();
        assert_eq!((raws.len(), names.len()), (ElementType::ALL.len(), ElementType::ALL.len()));
        for &element_type in ElementType::ALL {
            assert_eq!(ElementType::from_raw(element_type.to_raw()), Some(element_type));
        }
        assert_eq!(ElementType::ALL.len() + LEFT_OUT.len(), PJRT_Buffer_Type_F4E2M1FN as usize + 1);
    }
}
