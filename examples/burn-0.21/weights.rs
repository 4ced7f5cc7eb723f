//! The same initial weights on every backend.

use burn::module::Module;
use burn::prelude::Backend;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn_flex::Flex;

/// Returns `model` with the weights of `drawn`, which burn-flex drew from the seed. Both are of the same configuration.
pub fn same<B: Backend, D: Module<Flex>, M: Module<B>>(drawn: D, model: M, device: &B::Device) -> M {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = Recorder::<Flex>::record(&recorder, drawn.into_record(), ()).expect("memory can be written");
    let record = Recorder::<B>::load(&recorder, bytes, device).expect("the record was just written");
    model.load_record(record)
}
