//! What burn-store lacks for weights in bf16: an adapter that converts float tensors (feature `store`).
//!
//! burn-store gives each loaded tensor the dtype that it has in the file, whatever the dtype of the module's backend. A
//! checkpoint in f32 would make a model on `Tpu<bf16>` compute in f32, and burn-ndarray, which has no bf16, panics on one
//! in bf16. burn-store's own `HalfPrecisionAdapter` converts only between f32 and f16.

use burn_backend::Element;
use burn_backend::{BackendTypes, DType};
use burn_store::{ModuleAdapter, TensorSnapshot};
use std::rc::Rc;

/// Converts float tensors to one dtype while they are loaded or saved. Integers and booleans stay as they are.
///
/// ```
/// use burn_store::{ModuleAdapter, PyTorchToBurnAdapter, SafetensorsStore};
/// use burn_tpu::{Tpu, store::CastFloats};
///
/// // A PyTorch checkpoint of any float dtype, for a model on `Tpu<bf16>`.
/// let adapter = PyTorchToBurnAdapter.chain(CastFloats::to_those_of::<Tpu>());
/// let store = SafetensorsStore::from_file("model.safetensors").with_from_adapter(adapter);
/// ```
#[derive(Clone, Debug)]
pub struct CastFloats {
    dtype: DType,
}

impl CastFloats {
    /// Creates an adapter that converts to the default float type of a backend: to load into a module of this backend.
    pub fn to_those_of<B: BackendTypes>() -> Self {
        Self::to(B::FloatElem::dtype())
    }

    /// Creates an adapter that converts to a float dtype: to choose the dtype of a file that is saved.
    ///
    /// # Panics
    /// If it is not a float dtype.
    pub fn to(dtype: DType) -> Self {
        assert!(dtype.is_float(), "CastFloats converts to float dtypes, and {dtype:?} is none");
        Self { dtype }
    }
}

impl ModuleAdapter for CastFloats {
    fn adapt(&self, snapshot: &TensorSnapshot) -> TensorSnapshot {
        if !snapshot.dtype.is_float() || snapshot.dtype == self.dtype {
            return snapshot.clone();
        }
        let (read, dtype) = (snapshot.clone_data_fn(), self.dtype);
        TensorSnapshot::from_closure(
            Rc::new(move || Ok(read()?.convert_dtype(dtype))),
            dtype,
            snapshot.shape.clone(),
            snapshot.path_stack.clone().unwrap_or_default(),
            snapshot.container_stack.clone().unwrap_or_default(),
            snapshot.tensor_id.unwrap_or_default(),
        )
    }

    fn clone_box(&self) -> Box<dyn ModuleAdapter> {
        Box::new(self.clone())
    }
}
