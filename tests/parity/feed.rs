//! Loads a case's operands on a backend, passes them to a row's call, and reads the call's results.
//!
//! The reference computes in wider types: 16-bit floats in f32, integers in 64 bits. Its results are converted to our types
//! (rounded or wrapped once) before they are compared.

use crate::case::{Case, Operand, Values, range};
use crate::version;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn_backend::{Backend, DType, FloatDType, IntDType, TensorData, TensorMetadata, read_sync};

/// The side of the comparison that a feed serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Reference,
}

enum Output<B: Backend> {
    Float(FloatTensor<B>),
    Int(IntTensor<B>),
    Bool(BoolTensor<B>),
}

/// A result on the host.
#[derive(Clone, Debug)]
pub struct Read {
    pub dims: Vec<usize>,
    pub dtype: DType,
    /// The element type that our result must have.
    pub wanted: DType,
    pub values: Values,
}

/// The interface of a row's call to its case, on backend `B`.
pub struct Feed<'a, B: Backend, A> {
    pub attr: A,
    pub device: Device<B>,
    case: &'a Case<A>,
    side: Side,
    draws: u64,
    outputs: Vec<(Output<B>, DType)>,
}

impl<'a, B: Backend, A: Clone> Feed<'a, B, A> {
    pub fn new(case: &'a Case<A>, side: Side, device: Device<B>) -> Self {
        Self { attr: case.attr.clone(), device, case, side, draws: 0, outputs: Vec::new() }
    }

    /// Returns the case's float type, as this side computes it.
    pub fn float_type(&self) -> FloatDType {
        self.float_type_for(self.case.float)
    }

    /// Returns a float type, as this side computes it.
    pub fn float_type_for(&self, dtype: FloatDType) -> FloatDType {
        match (self.side, dtype) {
            (Side::Ours, dtype) => dtype,
            (Side::Reference, FloatDType::F64) => FloatDType::F64,
            (Side::Reference, _) => FloatDType::F32,
        }
    }

    /// Returns the case's integer type.
    pub fn case_int(&self) -> IntDType {
        self.case.int
    }

    /// Returns the case's integer type, as this side computes it.
    pub fn int_type(&self) -> IntDType {
        self.int_type_for(self.case.int)
    }

    /// Returns an integer type, as this side computes it: the reference in i64, or in u64 for types that do not fit.
    pub fn int_type_for(&self, dtype: IntDType) -> IntDType {
        let long = |operand: &Operand| match &operand.values {
            Values::Int(values) => values.iter().any(|&v| v > i128::from(i64::MAX)),
            Values::Float(_) | Values::Bool(_) => false,
        };
        match (self.side, dtype) {
            (Side::Ours, dtype) => dtype,
            (Side::Reference, IntDType::U64) if self.case.operands.iter().any(long) => IntDType::U64,
            (Side::Reference, _) => IntDType::I64,
        }
    }

    /// Returns the number of operands.
    pub fn count(&self) -> usize {
        self.case.operands.len()
    }

    /// Returns an operand's dims.
    pub fn dims(&self, operand: usize) -> &'a [usize] {
        &self.case.operands[operand].dims
    }

    /// Returns an operand's elements, unconverted.
    pub fn values(&self, operand: usize) -> &'a Values {
        &self.case.operands[operand].values
    }

    /// Returns an operand as data in this side's type.
    pub fn data(&self, operand: usize) -> TensorData {
        let Operand { dims, values } = &self.case.operands[operand];
        match values {
            Values::Float(values) => floats(values, dims, self.float_type()),
            Values::Int(values) => ints(values, dims, self.int_type()),
            Values::Bool(values) => TensorData::new(values.clone(), dims.clone()),
        }
    }

    /// Loads a float operand.
    pub fn x(&self, operand: usize) -> FloatTensor<B> {
        B::float_from_data(self.data(operand), &self.device)
    }

    /// Loads an integer operand.
    pub fn i(&self, operand: usize) -> IntTensor<B> {
        B::int_from_data(self.data(operand), &self.device)
    }

    /// Loads an operand of indices: in i32, whatever the case's integer type is.
    pub fn at(&self, operand: usize) -> IntTensor<B> {
        let data = match (self.side, self.values(operand)) {
            (Side::Ours, Values::Int(values)) => ints(values, self.dims(operand), IntDType::I32),
            _ => self.data(operand),
        };
        B::int_from_data(data, &self.device)
    }

    /// Loads a bool operand.
    pub fn b(&self, operand: usize) -> BoolTensor<B> {
        B::bool_from_data(self.data(operand), &self.device)
    }

    /// Loads a float tensor with these values.
    pub fn load(&self, values: &[f64], dims: &[usize]) -> FloatTensor<B> {
        self.load_as(self.float_type(), values, dims)
    }

    /// Loads a tensor with these values and float type.
    pub fn load_as(&self, dtype: FloatDType, values: &[f64], dims: &[usize]) -> FloatTensor<B> {
        B::float_from_data(floats(values, dims, dtype), &self.device)
    }

    /// Loads an integer tensor with these values.
    pub fn load_int(&self, values: &[i128], dims: &[usize]) -> IntTensor<B> {
        self.load_int_as(self.int_type(), values, dims)
    }

    /// Loads a tensor with these values and integer type.
    pub fn load_int_as(&self, dtype: IntDType, values: &[i128], dims: &[usize]) -> IntTensor<B> {
        B::int_from_data(ints(values, dims, dtype), &self.device)
    }

    /// Returns the next number of a sequence, below `end`. The sequence is the same on both sides (SplitMix64).
    fn next(&mut self, end: u64) -> u64 {
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.draws ^ (self.draws >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Returns eighths from -2 to 2: exact in every float type, with ties.
    pub fn eighths(&mut self, dims: &[usize]) -> FloatTensor<B> {
        let values: Vec<_> = (0..dims.iter().product()).map(|_: usize| self.next(33) as f64 / 8.0 - 2.0).collect();
        self.load(&values, dims)
    }

    /// Returns positions between pixels, where a bilinear read has a slope.
    pub fn offsets(&mut self, dims: &[usize]) -> FloatTensor<B> {
        let values: Vec<_> = (0..dims.iter().product()).map(|_: usize| self.next(13) as f64 / 4.0 - 1.375).collect();
        self.load(&values, dims)
    }

    /// Adds a result in the case's float type.
    pub fn float(&mut self, result: FloatTensor<B>) {
        self.float_as(self.case.float, result);
    }

    /// Adds a result that must have this float type.
    pub fn float_as(&mut self, dtype: FloatDType, result: FloatTensor<B>) {
        self.outputs.push((Output::Float(result), dtype.into()));
    }

    /// Adds a result in the case's integer type.
    pub fn int(&mut self, result: IntTensor<B>) {
        self.int_as(self.case.int, result);
    }

    /// Adds a result that must have this integer type.
    pub fn int_as(&mut self, dtype: IntDType, result: IntTensor<B>) {
        self.outputs.push((Output::Int(result), dtype.into()));
    }

    /// Adds a bool result.
    pub fn bool(&mut self, result: BoolTensor<B>) {
        self.outputs.push((Output::Bool(result), DType::Bool(burn_backend::BoolStore::Native)));
    }

    /// Reads the results.
    pub fn read(self) -> Result<Vec<Read>, String> {
        self.outputs.into_iter().map(|(output, wanted)| output.read(wanted)).collect()
    }
}

impl<B: Backend> Output<B> {
    fn read(self, wanted: DType) -> Result<Read, String> {
        let shape = match &self {
            Output::Float(x) => x.shape(),
            Output::Int(x) => x.shape(),
            Output::Bool(x) => x.shape(),
        };
        // burn-flex of Burn 0.23 stores some bools as numbers.
        let is_bool = matches!(self, Output::Bool(_));
        let data = match self {
            Output::Float(x) => read_sync(B::float_into_data(x)),
            Output::Int(x) => read_sync(B::int_into_data(x)),
            Output::Bool(x) => read_sync(B::bool_into_data(x)),
        };
        let data = data.map_err(|error| format!("the program failed: {error:?}"))?;
        let (dtype, of_data) = (version::dtype(&data), version::shape(&data));
        if of_data != shape {
            return Err(format!("the data has shape {of_data:?}, its tensor said {shape:?}"));
        }
        let values = match dtype {
            _ if is_bool => Values::Bool(data.iter::<bool>().collect()),
            dtype if dtype.is_float() => Values::Float(data.iter::<f64>().collect()),
            DType::U64 => Values::Int(data.iter::<u64>().map(i128::from).collect()),
            dtype if dtype.is_int() || dtype.is_uint() => Values::Int(data.iter::<i64>().map(i128::from).collect()),
            _ => Values::Bool(data.iter::<bool>().collect()),
        };
        Ok(Read { dims: shape.to_vec(), dtype, wanted, values })
    }
}

fn floats(values: &[f64], dims: &[usize], dtype: FloatDType) -> TensorData {
    TensorData::new(values.to_vec(), dims.to_vec()).convert_dtype(dtype.into())
}

fn ints(values: &[i128], dims: &[usize], dtype: IntDType) -> TensorData {
    if range(dtype).1 > i128::from(i64::MAX) {
        let values: Vec<_> = values.iter().map(|&v| v as u64).collect();
        return TensorData::new(values, dims.to_vec());
    }
    let values: Vec<_> = values.iter().map(|&v| v as i64).collect();
    TensorData::new(values, dims.to_vec()).convert_dtype(dtype.into())
}
