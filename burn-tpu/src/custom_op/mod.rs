//! Custom ops: [`custom_op`].
//!
//! Owns: how an op's operands and results are made of Burn's tensors, and its gradient. May not know: what a form is to a
//! program, and how it is checked, which are the runtime's.

pub(crate) mod autodiff;
pub(crate) mod tensors;

pub use tensors::OpTensors;

use crate::{CustomForm, CustomPartition, Mesh, Result, Tpu, TpuDevice, TpuFloat, TpuInt};
use burn_core::tensor::backend::Backend;
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::custom_op::{Gradient, Kind, UntypedOp, error};
use burn_tpu_runtime::kernels::KernelError;
use std::marker::PhantomData;
use std::sync::Arc;
use tensors::{AnyTensor, kinds};

/// An op of your own, made by [`custom_op`]: a form for the platform, a plain form for all others, and perhaps a gradient.
///
/// `I` and `O` are its operands and results: a tensor, or a tuple or array of tensors, of [`Tpu`]. Cloning shares what was
/// recorded.
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
/// Both are called once for each device and each set of operand types, and what they return is checked and kept; so make an
/// op once, as in a `static`. Both must depend on the types of their operands alone: `plain` may read no value, draw no
/// random numbers, use no other tensor, and make none of host data. A number in it becomes a constant.
///
/// The op is one node of the program: it is part of the program's identity with its text, and its name is in what
/// [`fit`](crate::fit), [`profile`](crate::profile) and errors say. XLA fuses nothing into a kernel.
///
/// ```
/// use burn::tensor::{Tensor, activation};
/// use burn_tpu::kernels::{Element, kernels};
/// use burn_tpu::{CustomOp, Tpu, TpuDevice, custom_op};
/// use std::sync::LazyLock;
///
/// type Matrix = Tensor<Tpu<f32>, 2>;
///
/// static SOFTMAX: LazyLock<CustomOp<Matrix, Matrix>> = LazyLock::new(|| {
///     custom_op(
///         "softmax",
///         |x: &Matrix| {
///             let [rows, columns] = x.dims();
///             Ok(kernels::softmax(Element::F32, rows, columns)?.into())
///         },
///         |x: Matrix| activation::softmax(x, 1),
///     )
///     // From operands, results and gradients of the results, the gradients of the operands.
///     .with_gradient(|_x: Matrix, y: Matrix, dy: Matrix| {
///         let product = y.clone() * dy;
///         product.clone() - y * product.sum_dim(1)
///     })
/// });
///
/// # fn main() -> Result<(), burn_tpu::TpuError> {
/// let x = Tensor::<Tpu<f32>, 2>::ones([8, 128], &TpuDevice::default());
/// let y = SOFTMAX.call(x)?;
/// assert!((y.sum().into_scalar() - 8.0).abs() < 1e-4);
/// # Ok(())
/// # }
/// ```
///
/// The [book](https://github.com/burn-tpu/burn-tpu/blob/main/docs/kernels.md) has more examples.
pub fn custom_op<I, O, F, P>(name: &'static str, form: F, plain: P) -> CustomOp<I, O>
where
    I: OpTensors,
    O: OpTensors,
    F: Fn(&I) -> Result<CustomForm, KernelError> + Send + Sync + 'static,
    P: Fn(I) -> O + Send + Sync + 'static,
    I::Backend: TpuBackend,
    O::Backend: TpuBackend,
{
    let record = move |operands: Vec<Tensor>| {
        let operands = tensors::from_tensors::<I>(operands)?;
        let form = form(&operands).map_err(|reason| error(name, reason.to_string()));
        Ok((form, tensors::to_tensors(plain(operands))))
    };
    CustomOp { op: Arc::new(UntypedOp::new(name, Arc::new(record), kinds::<O>())), gradient: None, types: PhantomData }
}

impl<I, O> CustomOp<I, O>
where
    I: OpTensors,
    O: OpTensors,
    I::Backend: TpuBackend,
    O::Backend: TpuBackend,
{
    /// Adds a gradient: from the operands, the results and the gradients of the results to the gradients of the operands.
    /// What is not float has none: in place of such a result's gradient comes the result, and what is returned for such an
    /// operand is not read.
    ///
    /// It is recorded in the backward pass, on [`Tpu`], with Burn's ops or with other custom ops. What nobody needs of it is
    /// not computed.
    pub fn with_gradient(self, gradient: impl Fn(I, O, O) -> I + Send + Sync + 'static) -> Self {
        let gradient = move |operands: Vec<Tensor>, results: Vec<Tensor>, gradients: Vec<Tensor>| {
            let (operands, results) = (tensors::from_tensors::<I>(operands)?, tensors::from_tensors::<O>(results)?);
            Ok(tensors::to_tensors(gradient(operands, results, tensors::from_tensors::<O>(gradients)?)))
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
    ///
    /// ```
    /// use burn::tensor::{Tensor, activation};
    /// use burn_tpu::kernels::{Element, kernels};
    /// use burn_tpu::{CustomOp, CustomPartition, Tpu, custom_op};
    ///
    /// type Matrix = Tensor<Tpu<f32>, 2>;
    ///
    /// let softmax: CustomOp<Matrix, Matrix> = custom_op(
    ///     "softmax",
    ///     |x: &Matrix| {
    ///         let [rows, columns] = x.dims();
    ///         Ok(kernels::softmax(Element::F32, rows, columns)?.into())
    ///     },
    ///     |x: Matrix| activation::softmax(x, 1),
    /// )
    /// .with_partition(|mesh, _| {
    ///     let batch = mesh.batch_names().join("+");
    ///     let rows = [Some(batch.as_str()), None];
    ///     (!batch.is_empty()).then(|| CustomPartition::new().operand(&rows).result(&rows))
    /// });
    /// ```
    pub fn with_partition(
        self,
        partition: impl Fn(&Mesh, &I) -> Option<CustomPartition> + Send + Sync + 'static,
    ) -> Self {
        let of = move |mesh: &Mesh, operands: &[Tensor]| {
            Ok(partition(mesh, &tensors::from_tensors::<I>(operands.to_vec())?))
        };
        Self { op: Arc::new(self.op.with_partition(Arc::new(of))), ..self }
    }

    /// Calls the op on tensors of [`Tpu`] or of its autodiff.
    ///
    /// # Errors
    /// [`TpuError::CustomOp`](crate::TpuError::CustomOp), at the first call with these types, if the forms do not agree with
    /// the operands and with each other, if the plain form is not a function of its operands, or if the partition does not
    /// divide them; at each call, if the operands are on several devices, or if one of them requires a gradient and the op
    /// has none. What the plugin's compiler says of a form comes with the first read.
    ///
    /// # Panics
    /// If `form` or `plain` does; the backward pass panics if a gradient has other dims or another dtype than its operand.
    pub fn call<B: CustomOpBackend>(&self, operands: I::On<B>) -> Result<O::On<B>> {
        let mut values = Vec::new();
        operands.into_values(&mut values);
        let mut results = B::call(&self.op, self.gradient.as_ref(), values)?.into_iter();
        O::On::<B>::from_values(&mut results).ok_or_else(|| self.op.error("its forms have too few results"))
    }
}

/// [`Tpu`] with any default element types.
pub trait TpuBackend: sealed::Sealed + Backend<Device = TpuDevice> {
    #[doc(hidden)]
    fn to_tensor(value: AnyTensor<Self>) -> Tensor;

    #[doc(hidden)]
    fn to_value(tensor: Tensor, kind: Kind) -> AnyTensor<Self>;
}

impl<F: TpuFloat, I: TpuInt> TpuBackend for Tpu<F, I> {
    fn to_tensor(value: AnyTensor<Self>) -> Tensor {
        let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = value;
        tensor.0
    }

    fn to_value(tensor: Tensor, kind: Kind) -> AnyTensor<Self> {
        match kind {
            Kind::Float => AnyTensor::Float(tensor.into()),
            Kind::Int => AnyTensor::Int(tensor.into()),
            Kind::Bool => AnyTensor::Bool(tensor.into()),
        }
    }
}

/// The backends whose tensors a [`CustomOp`] takes: [`Tpu`] and its autodiff.
pub trait CustomOpBackend: sealed::Sealed + Backend<Device = TpuDevice> {
    #[doc(hidden)]
    fn call(
        op: &Arc<UntypedOp>,
        gradient: Option<&Arc<Gradient>>,
        operands: Vec<AnyTensor<Self>>,
    ) -> Result<Vec<AnyTensor<Self>>>;
}

impl<F: TpuFloat, I: TpuInt> CustomOpBackend for Tpu<F, I> {
    fn call(
        op: &Arc<UntypedOp>,
        _gradient: Option<&Arc<Gradient>>,
        operands: Vec<AnyTensor<Self>>,
    ) -> Result<Vec<AnyTensor<Self>>> {
        let results = op.call(operands.into_iter().map(Self::to_tensor).collect())?;
        Ok(results.into_iter().zip(op.results()).map(|(tensor, &kind)| Self::to_value(tensor, kind)).collect())
    }
}

pub(crate) mod sealed {
    use crate::{Tpu, TpuFloat, TpuInt};
    use burn_autodiff::Autodiff;
    use burn_autodiff::checkpoint::strategy::CheckpointStrategy;

    pub trait Sealed {}

    impl<F: TpuFloat, I: TpuInt> Sealed for Tpu<F, I> {}

    impl<F: TpuFloat, I: TpuInt, C: CheckpointStrategy> Sealed for Autodiff<Tpu<F, I>, C> {}
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
