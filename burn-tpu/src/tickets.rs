//! Records without the values of their tensors.
//!
//! A Burn record is turned into something that serde can write by a read of each of its tensors, and is made from it by an
//! upload of each. While `collect` runs, a read copies nothing: it sets the tensor aside and returns a *ticket*, a few
//! numbers that say which one it was. While `supply` runs, an upload of a ticket returns the tensor that it names. So a
//! record is taken apart, and put together, with its tensors as they are: of their own dtypes, on the device, not waited
//! for.

use crate::{TpuTensor, version};
use burn_backend::{TensorData, TensorMetadata};
use burn_std::DType;
use std::cell::RefCell;

/// Bits of a ticket, of which each is one element: 0 and 1 survive a conversion to any element type.
const BITS: usize = 32;

/// Names a tensor by its place among those that were collected or are supplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

impl Ticket {
    /// Returns the ticket of the tensor at this place.
    pub fn new(index: u32) -> Self {
        Self(index)
    }

    /// Returns the place of the tensor.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the ticket as data of a rank, which is that of the tensor: Burn checks the rank of what it loads.
    pub fn data(self, rank: usize) -> TensorData {
        let bits: Vec<f32> = (0..BITS).map(|bit| (self.0 >> bit & 1) as f32).collect();
        let mut shape = vec![1; rank.max(1)];
        shape[rank.max(1) - 1] = BITS;
        TensorData::new(bits, shape)
    }

    /// Returns the ticket that data is, whatever element type it was converted to; `None` for any other data.
    pub fn of(data: &TensorData) -> Option<Self> {
        let is_quantized = matches!(version::dtype(data), DType::QFloat(_));
        if is_quantized || version::shape(data).last() != Some(&BITS) || data.num_elements() != BITS {
            return None;
        }
        let bits = data.iter::<f32>().enumerate();
        Some(Self(bits.fold(0, |all, (bit, set)| all | u32::from(set != 0.0) << bit)))
    }
}

/// What reads and uploads of the thread do now.
enum TransferMode {
    Collect(Vec<TpuTensor>),
    Supply(Vec<TpuTensor>),
}

thread_local! {
    static MODE: RefCell<Option<TransferMode>> = const { RefCell::new(None) };
}

/// Runs `work`, in which a read of a tensor returns its ticket and does not wait. Also returns the tensors that were read, in
/// the order of their tickets.
pub fn collect<R>(work: impl FnOnce() -> R) -> (R, Vec<TpuTensor>) {
    match with_mode(TransferMode::Collect(Vec::new()), work) {
        (result, Some(TransferMode::Collect(tensors))) => (result, tensors),
        (result, _) => (result, Vec::new()),
    }
}

/// Runs `work`, in which an upload of a ticket returns the tensor that it names. Uploads of other data are as ever.
pub fn supply<R>(tensors: Vec<TpuTensor>, work: impl FnOnce() -> R) -> R {
    with_mode(TransferMode::Supply(tensors), work).0
}

/// Runs `work` in a mode. Also returns the mode with the tensors that `work` collected.
fn with_mode<R>(mode: TransferMode, work: impl FnOnce() -> R) -> (R, Option<TransferMode>) {
    /// Restores the mode before, also after a panic.
    struct Ends(Option<TransferMode>);
    impl Drop for Ends {
        fn drop(&mut self) {
            MODE.replace(self.0.take());
        }
    }
    let ends = Ends(MODE.replace(Some(mode)));
    let result = work();
    let left = MODE.take();
    drop(ends);
    (result, left)
}

/// Sets a tensor aside, if tensors are collected now, and returns its ticket.
pub(crate) fn collected(tensor: &TpuTensor) -> Option<TensorData> {
    MODE.with_borrow_mut(|mode| {
        let Some(TransferMode::Collect(tensors)) = mode else { return None };
        let ticket = Ticket(tensors.len() as u32).data(tensor.rank());
        tensors.push(tensor.clone());
        Some(ticket)
    })
}

/// Returns the tensor of a ticket, if tensors are supplied now.
pub(crate) fn supplied(data: &TensorData) -> Option<TpuTensor> {
    MODE.with_borrow(|mode| {
        let Some(TransferMode::Supply(tensors)) = mode else { return None };
        tensors.get(Ticket::of(data)?.index()).cloned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_std::BoolStore;

    #[test]
    fn a_ticket_survives_every_element_type() {
        for index in [0, 1, 257, 70_000, u32::MAX] {
            let ticket = Ticket::new(index);
            for dtype in [DType::BF16, DType::F16, DType::F64, DType::I8, DType::U64, DType::Bool(BoolStore::Native)] {
                let data = ticket.data(3).convert_dtype(dtype);
                assert_eq!((Ticket::of(&data), version::shape(&data).num_dims()), (Some(ticket), 3), "{dtype:?}");
            }
        }
    }

    #[test]
    fn other_data_is_no_ticket() {
        assert_eq!(Ticket::of(&TensorData::from([1.0f32, 2.0])), None);
        assert_eq!(Ticket::of(&TensorData::zeros::<f32, _>([2, 32])), None);
    }
}
