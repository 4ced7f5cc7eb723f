//! Named values: the form of plugins' attributes and of client options (header: `PJRT_NamedValue`).

use std::ffi::c_char;
use std::fmt;
use std::marker::PhantomData;

use crate::abi::Struct;
use crate::api::{slice, string};
use crate::bindings::*;

/// A value with its type. A plugin aborts the process when an option's type differs from the expected one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    String(String),
    /// A 64-bit integer.
    Int(i64),
    /// A list of 64-bit integers.
    Ints(Vec<i64>),
    /// A single-precision float.
    Float(f32),
    /// A boolean.
    Bool(bool),
}

impl Value {
    /// Returns the name of this value's type, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) => "a string",
            Value::Int(_) => "an integer",
            Value::Ints(_) => "a list of integers",
            Value::Float(_) => "a float",
            Value::Bool(_) => "a bool",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::String(value) => f.write_str(value),
            Value::Int(value) => write!(f, "{value}"),
            Value::Ints(value) => write!(f, "{value:?}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Bool(value) => write!(f, "{value}"),
        }
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::String(value.to_owned())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Value {
        Value::Float(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

/// The attributes of a plugin, a device or an executable, in the plugin's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(Vec<(String, Value)>);

impl Attributes {
    /// Returns the value with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Iterates over the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Copies a C array.
    ///
    /// # Safety
    /// `values` points to `count` named values that are valid during this call (or `count` is 0).
    pub(crate) unsafe fn copy(values: *const PJRT_NamedValue, count: usize) -> Attributes {
        // SAFETY: guaranteed by the caller.
        let values = unsafe { slice(values, count) };
        // SAFETY: the caller guarantees that each is a valid named value.
        let copied = values.iter().filter_map(|value| unsafe { copy_one(value) }).collect();
        Attributes(copied)
    }
}

/// Copies one named value; returns `None` if this header does not know its type.
///
/// # Safety
/// Its pointers are valid for the lengths that it states.
unsafe fn copy_one(raw: &PJRT_NamedValue) -> Option<(String, Value)> {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { string(raw.name, raw.name_size) };
    let value = raw.__bindgen_anon_1;
    let value = match raw.type_ {
        PJRT_NamedValue_kString => {
            // SAFETY: `type` says which field of the union is set.
            let text = unsafe { value.string_value };
            // SAFETY: guaranteed by the caller; for strings `value_size` counts characters.
            Value::String(unsafe { string(text, raw.value_size) })
        }
        // SAFETY: `type` says which field of the union is set.
        PJRT_NamedValue_kInt64 => Value::Int(unsafe { value.int64_value }),
        PJRT_NamedValue_kInt64List => {
            // SAFETY: `type` says which field of the union is set.
            let list = unsafe { value.int64_array_value };
            // SAFETY: guaranteed by the caller; for lists `value_size` counts elements.
            Value::Ints(unsafe { slice(list, raw.value_size) }.to_vec())
        }
        // SAFETY: `type` says which field of the union is set.
        PJRT_NamedValue_kFloat => Value::Float(unsafe { value.float_value }),
        // SAFETY: `type` says which field of the union is set.
        PJRT_NamedValue_kBool => Value::Bool(unsafe { value.bool_value }),
        _ => return None,
    };
    Some((name, value))
}

/// The C form of options. It points into the names, strings and lists of `values`.
pub(crate) struct RawValues<'a> {
    raw: Vec<PJRT_NamedValue>,
    /// Keeps the values that `raw` points to borrowed.
    _values: PhantomData<&'a [(String, Value)]>,
}

impl<'a> RawValues<'a> {
    pub(crate) fn new(values: &'a [(String, Value)]) -> RawValues<'a> {
        RawValues { raw: values.iter().map(|(name, value)| to_raw_one(name, value)).collect(), _values: PhantomData }
    }

    pub(crate) fn as_ptr(&self) -> *const PJRT_NamedValue {
        self.raw.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }
}

fn to_raw_one(name: &str, value: &Value) -> PJRT_NamedValue {
    let mut raw = PJRT_NamedValue::new();
    raw.name = name.as_ptr().cast::<c_char>();
    raw.name_size = name.len();
    (raw.type_, raw.value_size) = match value {
        Value::String(text) => (PJRT_NamedValue_kString, text.len()),
        Value::Int(_) => (PJRT_NamedValue_kInt64, 1),
        Value::Ints(list) => (PJRT_NamedValue_kInt64List, list.len()),
        Value::Float(_) => (PJRT_NamedValue_kFloat, 1),
        Value::Bool(_) => (PJRT_NamedValue_kBool, 1),
    };
    raw.__bindgen_anon_1 = match value {
        Value::String(text) => PJRT_NamedValue__bindgen_ty_1 { string_value: text.as_ptr().cast::<c_char>() },
        Value::Int(value) => PJRT_NamedValue__bindgen_ty_1 { int64_value: *value },
        Value::Ints(list) => PJRT_NamedValue__bindgen_ty_1 { int64_array_value: list.as_ptr() },
        Value::Float(value) => PJRT_NamedValue__bindgen_ty_1 { float_value: *value },
        Value::Bool(value) => PJRT_NamedValue__bindgen_ty_1 { bool_value: *value },
    };
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_the_conversion_to_c_and_back() {
        let values = vec![
            ("name".to_owned(), Value::from("text with \u{e9}")),
            ("count".to_owned(), Value::from(-7)),
            ("list".to_owned(), Value::Ints(vec![1, 2, 3])),
            ("empty".to_owned(), Value::Ints(vec![])),
            ("fraction".to_owned(), Value::from(0.5)),
            ("flag".to_owned(), Value::from(true)),
        ];
        let raw = RawValues::new(&values);
        // SAFETY: `raw` borrows from `values`, which is alive.
        let copied = unsafe { Attributes::copy(raw.as_ptr(), raw.len()) };
        assert_eq!(copied.0, values);
        assert_eq!(copied.get("count"), Some(&Value::Int(-7)));
        assert_eq!(copied.get("absent"), None);
    }

    #[test]
    fn an_unknown_type_is_left_out() {
        let values = [("x".to_owned(), Value::Int(1))];
        let mut raw = RawValues::new(&values);
        raw.raw[0].type_ = 99;
        // SAFETY: `raw` borrows from `values`, which is alive.
        assert_eq!(unsafe { Attributes::copy(raw.as_ptr(), 1) }.iter().count(), 0);
    }
}
