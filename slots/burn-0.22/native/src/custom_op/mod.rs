//! Custom ops: [`custom_op`].
//!
//! Owns: how an op's operands and results are made of Burn's tensors, and its node in Burn's graph. May not know: what a
//! form is to a program, how it is checked, and what the backward pass computes, which are the runtime's.

pub(crate) mod autodiff;
pub(crate) mod tensors;

pub use burn_tpu_runtime::custom_op::{CustomForm, CustomPartition};
pub use tensors::OpTensors;

use crate::Result;
use burn_tpu_runtime::custom_op::{Gradient, UntypedOp, error};
use burn_tpu_runtime::kernels::KernelError;
use burn_tpu_runtime::{Mesh, Tensor};
use std::marker::PhantomData;
use std::sync::Arc;
use tensors::{from_values, into_values, kinds};

/// An op of your own, made by [`custom_op`]: a form for the platform, a plain form for all others, and perhaps a gradient.
///
/// `I` and `O` are its operands and results: a tensor, or a tuple or array of tensors. Cloning shares what was recorded.
pub struct CustomOp<I, O> {
    op: Arc<UntypedOp>,
    gradient: Option<Arc<Gradient>>,
    types: PhantomData<fn(I) -> O>,
}

/// Returns an op of your own: a computation that you write in two forms.
///
/// - `form` returns what a platform is given: a kernel for TPUs ([`crate::kernels`]), or a function in StableHLO text, which
///   every plugin compiles. It is given the operands, of which it may ask dims and dtypes.
/// - `plain` computes the same with Burn's ops. It is what runs where the form is not taken: a kernel runs on a TPU alone,
///   StableHLO not in the interpreter. It also says what the results' types are.
///
/// Both are called once for each device and each set of operand types, with tensors without autodiff, and what they return
/// is checked and kept; so make an op once, as in a `static`. Both must depend on the types of their operands alone: `plain`
/// may read no value, draw no random numbers, use no other tensor, and make none of host data. A number in it becomes a
/// constant.
///
/// The op is one node of the program: it is part of the program's identity with its text, and its name is in what
/// [`fit`](crate::fit) and errors say. XLA fuses nothing into a kernel.
///
/// ```
/// use burn::tensor::{Device, Tensor, activation};
/// use burn_tpu::kernels::{Element, kernels};
/// use burn_tpu::{CustomOp, TpuDevice, custom_op};
/// use std::sync::LazyLock;
///
/// static SOFTMAX: LazyLock<CustomOp<Tensor<2>, Tensor<2>>> = LazyLock::new(|| {
///     custom_op(
///         "softmax",
///         |x: &Tensor<2>| {
///             let [rows, columns] = x.dims();
///             Ok(kernels::softmax(Element::F32, rows, columns)?.into())
///         },
///         |x: Tensor<2>| activation::softmax(x, 1),
///     )
///     // From operands, results and gradients of the results, the gradients of the operands.
///     .with_gradient(|_x, y: Tensor<2>, dy: Tensor<2>| {
///         let product = y.clone() * dy;
///         product.clone() - y * product.sum_dim(1)
///     })
/// });
///
/// # fn main() -> Result<(), burn_tpu::TpuError> {
/// let x = Tensor::<2>::ones([8, 128], &Device::from(TpuDevice::default()));
/// let y = SOFTMAX.call(x)?;
/// assert!((y.sum().into_scalar::<f32>() - 8.0).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
pub fn custom_op<I, O, F, P>(name: &'static str, form: F, plain: P) -> CustomOp<I, O>
where
    I: OpTensors,
    O: OpTensors,
    F: Fn(&I) -> Result<CustomForm, KernelError> + Send + Sync + 'static,
    P: Fn(I) -> O + Send + Sync + 'static,
{
    let record = move |operands: Vec<Tensor>| {
        let operands = from_values::<I>(operands)?;
        let form = form(&operands).map_err(|reason| error(name, reason.to_string()));
        Ok((form, into_values(name, plain(operands))?))
    };
    CustomOp { op: Arc::new(UntypedOp::new(name, Arc::new(record), kinds::<O>())), gradient: None, types: PhantomData }
}

impl<I: OpTensors, O: OpTensors> CustomOp<I, O> {
    /// Adds a gradient: from the operands, the results and the gradients of the results to the gradients of the operands.
    /// What is not float has none: in place of such a result's gradient comes the result, and what is returned for such an
    /// operand is not read.
    ///
    /// It is recorded in the backward pass, on tensors without autodiff, with Burn's ops or with other custom ops. What nobody
    /// needs of it is not computed.
    pub fn with_gradient(self, gradient: impl Fn(I, O, O) -> I + Send + Sync + 'static) -> Self {
        let name = self.op.name();
        let gradient = move |operands: Vec<Tensor>, results: Vec<Tensor>, gradients: Vec<Tensor>| {
            let (operands, results) = (from_values::<I>(operands)?, from_values::<O>(results)?);
            into_values(name, gradient(operands, results, from_values::<O>(gradients)?))
        };
        Self { gradient: Some(Arc::new(gradient)), ..self }
    }

    /// Says how meshes of several chips divide the op; `None` for one that does not. Each part of the results must be the op of
    /// the parts of the operands. Every chip then runs the form for its part, or the plain form where it does not take the
    /// form, and nothing is exchanged inside. `partition` is given the whole operands, of which it may ask dims and dtypes;
    /// `form` and `plain` are called for the parts too. One chip, the interpreter, and everything that counts operations have
    /// the whole.
    ///
    /// Without it, a mesh runs a kernel's plain form, and XLA's partitioner divides what it finds in a plain form or in
    /// StableHLO.
    pub fn with_partition(
        self,
        partition: impl Fn(&Mesh, &I) -> Option<CustomPartition> + Send + Sync + 'static,
    ) -> Self {
        let of = move |mesh: &Mesh, operands: &[Tensor]| Ok(partition(mesh, &from_values::<I>(operands.to_vec())?));
        Self { op: Arc::new(self.op.with_partition(Arc::new(of))), ..self }
    }

    /// Calls the op on tensors of a [`TpuDevice`](crate::TpuDevice), with autodiff or without.
    ///
    /// # Errors
    /// [`TpuError::CustomOp`](crate::TpuError::CustomOp), at the first call with these types, if the forms do not agree with
    /// the operands and with each other, if the plain form is not a function of its operands, or if the partition does not
    /// divide them; at each call, if an operand is quantized or on another backend, if the operands are on several devices, or
    /// if one of them requires a gradient and the op has none. What the plugin's compiler says of a form comes with the first
    /// read.
    ///
    /// # Panics
    /// If `form` or `plain` does; the backward pass panics if a gradient has other dims or another dtype than its operand.
    pub fn call(&self, operands: I) -> Result<O> {
        let mut tensors = Vec::new();
        operands.into_tensors(&mut tensors);
        let mut results = autodiff::call(&self.op, self.gradient.as_ref(), tensors)?.into_iter();
        O::from_tensors(&mut results).ok_or_else(|| self.op.error("its forms have too few results"))
    }
}

impl<I, O> Clone for CustomOp<I, O> {
    fn clone(&self) -> Self {
        Self { op: Arc::clone(&self.op), gradient: self.gradient.clone(), types: PhantomData }
    }
}

impl<I, O> std::fmt::Debug for CustomOp<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CustomOp({})", self.op.name())
    }
}
