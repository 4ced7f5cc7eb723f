//! The run-time scalars of a program on its devices, packed into one buffer for each width.
//!
//! Owns: the copies of the latest run, which a run with the same scalars reads again. May not know: what the scalars are.

use crate::error::{Result, TpuError};
use crate::metrics::Counters;
use burn_tpu_graph::{Argument, lower::pack_slots};
use burn_tpu_pjrt::{Buffer, Device, TensorSpec};
use parking_lot::Mutex;
use std::sync::Arc;

/// The packed scalars of a run, by device. All scalars of at most 32 bits share one buffer.
pub(super) type Packed = Arc<Vec<Vec<Buffer>>>;

/// The scalars of one program.
pub(super) struct Scalars {
    /// The scalars of the latest run, and their copies.
    latest: Mutex<(Vec<u64>, Option<Packed>)>,
    counters: Arc<Counters>,
}

impl Scalars {
    pub(super) fn new(counters: &Arc<Counters>) -> Self {
        Self { latest: Mutex::default(), counters: Arc::clone(counters) }
    }

    /// Returns the scalars on these devices, which are the same for each run. They are copied there unless the latest run
    /// had the same, as those of a compiled function are: on an H100 a transfer costs the host 12 us.
    ///
    /// # Errors
    /// Those of the transfer.
    pub(super) fn on(
        &self,
        devices: &[Device],
        arguments: &[(Argument, Arc<TensorSpec>)],
        scalars: &[u64],
    ) -> Result<Packed> {
        let mut latest = self.latest.lock();
        if let (same, Some(packed)) = &*latest
            && same == scalars
        {
            return Ok(Arc::clone(packed));
        }
        let packed = devices.iter().map(|device| self.upload(device, arguments, scalars)).collect::<Result<_>>()?;
        let packed = Arc::new(packed);
        latest.0.clear();
        latest.0.extend_from_slice(scalars);
        latest.1 = Some(Arc::clone(&packed));
        Ok(packed)
    }

    fn upload(
        &self,
        device: &Device,
        arguments: &[(Argument, Arc<TensorSpec>)],
        scalars: &[u64],
    ) -> Result<Vec<Buffer>> {
        let mut packed = Vec::new();
        for (recipe, spec) in arguments {
            if let Argument::Slots { ty, slots } = recipe {
                let bytes = pack_slots(ty.dtype, slots, scalars).map_err(|error| TpuError::Bug(error.to_string()))?;
                let buffer = Buffer::from_host(device, Arc::clone(spec), &bytes);
                packed.push(buffer.map_err(TpuError::pjrt("uploading scalars"))?);
            }
        }
        Counters::add(&self.counters.scalar_uploads, packed.len());
        Ok(packed)
    }
}
