//! The live values of a device, counted by the site that made them.

use super::OutOfMemory;
use super::report::{LiveTensors, MemoryKind, MemoryUse};
use crate::lines::{Resolver, Stack};
use burn_tpu_graph::{Label, Role, TensorType};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// The live values of a device. Sizes are sizes on the device; for a mesh, on all of its chips that this process has.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    live: AtomicU64,
    peak: AtomicU64,
    /// The live bytes at the peak, by kind.
    at_peak: Mutex<MemoryUse>,
    sites: Mutex<AllocationSites>,
    /// The most bytes that may be live; 0 for no limit.
    limit: AtomicU64,
}

/// The sites that have live values, and some that had.
#[derive(Debug, Default)]
struct AllocationSites {
    all: Vec<Weak<AllocationSite>>,
    /// The length of `all` at which the dropped sites are removed from it.
    most: usize,
}

/// Where values are made: a result of a program, or an upload.
pub(crate) struct AllocationSite {
    ledger: Arc<Ledger>,
    ty: TensorType,
    /// The size of one value on the device, once there was one.
    bytes: OnceLock<u64>,
    kind: AtomicU8,
    /// The number of live values.
    live: AtomicUsize,
    /// The Burn op that makes the value.
    op: OnceLock<Label>,
    /// The stack that recorded the op.
    stack: OnceLock<Stack>,
}

impl std::fmt::Debug for AllocationSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} live values {} of {:?}", self.live.load(Relaxed), self.ty, self.op.get())
    }
}

/// Counts a value as live until it is dropped.
pub(crate) struct LiveValue(Arc<AllocationSite>);

/// The op of a value that came from the host.
const FROM_HOST: Label = "from_data";

/// The number of largest sites in a report.
const LARGEST: usize = 10;

impl Ledger {
    /// Sets the most bytes that may be live.
    pub(crate) fn set_limit(&self, bytes: Option<u64>) {
        self.limit.store(bytes.unwrap_or(0), Relaxed);
    }

    /// Returns the most bytes that may be live, if there is a limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Relaxed)).filter(|&limit| limit > 0)
    }

    /// Returns the bytes that are live.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// Checks that `needed` more bytes fit.
    ///
    /// # Errors
    /// [`OutOfMemory`] if they exceed the limit. The device's name is left to the device.
    pub(crate) fn check(&self, what: &dyn std::fmt::Display, needed: u64) -> Result<(), Box<OutOfMemory>> {
        let Some(limit) = self.limit().filter(|&limit| self.live() + needed > limit) else { return Ok(()) };
        Err(self.full(what.to_string(), Some(needed), Some(limit), None))
    }

    /// Returns the error for a device that has no room for `what`.
    pub(crate) fn full(
        &self,
        what: String,
        needed: Option<u64>,
        limit: Option<u64>,
        message: Option<String>,
    ) -> Box<OutOfMemory> {
        let (device, live, largest) = (String::new(), self.by_kind(), Vec::new());
        Box::new(OutOfMemory { device, what, needed, live, limit, message, largest })
    }

    /// Returns a new site for a program's result.
    pub(crate) fn result(self: &Arc<Self>, ty: TensorType, role: Role) -> Arc<AllocationSite> {
        let kind = match role {
            Role::Parameter => MemoryKind::Parameters,
            Role::State => MemoryKind::OptimizerState,
            Role::Value => MemoryKind::Activations,
        };
        self.site(ty, kind)
    }

    /// Returns a new site for an upload. Its value counts as a batch until a second run reads it.
    pub(crate) fn upload(self: &Arc<Self>, ty: TensorType) -> Arc<AllocationSite> {
        let site = self.site(ty, MemoryKind::Batches);
        site.op.get_or_init(|| FROM_HOST);
        site
    }

    fn site(self: &Arc<Self>, ty: TensorType, kind: MemoryKind) -> Arc<AllocationSite> {
        let site = Arc::new(AllocationSite {
            ledger: Arc::clone(self),
            ty,
            bytes: OnceLock::new(),
            kind: AtomicU8::new(kind as u8),
            live: AtomicUsize::new(0),
            op: OnceLock::new(),
            stack: OnceLock::new(),
        });
        self.sites.lock().add(&site);
        site
    }

    /// Notes that a program was dispatched which needs these bytes beside its arguments and results.
    pub(crate) fn ran(&self, temporaries: u64) {
        let bytes = self.live() + temporaries;
        // Noting a peak walks over all sites, so a slow growth is noted in steps of 0.1 %.
        let known = self.peak.load(Relaxed);
        if bytes <= known + known / 1024 {
            return;
        }
        self.peak.store(bytes, Relaxed);
        *self.at_peak.lock() = MemoryUse { temporaries, ..self.by_kind() };
    }

    /// Returns the live bytes by kind.
    pub(crate) fn by_kind(&self) -> MemoryUse {
        let mut uses = MemoryUse::default();
        for site in self.live_sites() {
            *uses.of_mut(site.kind()) += site.live_bytes();
        }
        uses
    }

    /// Returns the bytes that were live at the peak, by kind.
    pub(crate) fn peak(&self) -> MemoryUse {
        *self.at_peak.lock()
    }

    /// Returns the largest live values, largest first. `uploaded_at` returns the line of host values of a type.
    pub(crate) fn largest(&self, uploaded_at: impl Fn(&TensorType) -> Option<String>) -> Vec<LiveTensors> {
        let mut resolver = Resolver::default();
        let mut all: Vec<LiveTensors> = Vec::new();
        // Finding a line takes milliseconds, so it is done for the largest alone.
        for (site, count, bytes) in self.largest_sites() {
            let recorded_at = site.stack.get().map(|stack| resolver.line(stack));
            let line = recorded_at.or_else(|| uploaded_at(&site.ty).filter(|_| site.op() == FROM_HOST));
            let (op, ty) = (site.op().to_owned(), site.ty.to_string());
            let found = LiveTensors { op, line, ty, kind: site.kind(), count, bytes };
            match all.iter_mut().find(|known| known.is_like(&found)) {
                Some(known) => known.add(&found),
                None => all.push(found),
            }
        }
        all.sort_by_key(|tensors| std::cmp::Reverse(tensors.bytes));
        all.truncate(LARGEST);
        all
    }

    /// Returns the sites of the largest values, each with the number of live values and their bytes. Every upload has a site
    /// of its own; uploads of one type count as one site here.
    fn largest_sites(&self) -> Vec<(Arc<AllocationSite>, usize, u64)> {
        let mut from_host: FxHashMap<(TensorType, MemoryKind), usize> = FxHashMap::default();
        let mut largest: Vec<(Arc<AllocationSite>, usize, u64)> = Vec::new();
        for site in self.live_sites() {
            let (count, bytes) = (site.live.load(Relaxed), site.live_bytes());
            let new = largest.len();
            let place = match site.op() {
                FROM_HOST => *from_host.entry((site.ty.clone(), site.kind())).or_insert(new),
                _ => new,
            };
            match largest.get_mut(place) {
                Some(known) => (known.1, known.2) = (known.1 + count, known.2 + bytes),
                None => largest.push((site, count, bytes)),
            }
        }
        largest.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
        largest.truncate(16 * LARGEST);
        largest
    }

    fn live_sites(&self) -> Vec<Arc<AllocationSite>> {
        let sites = self.sites.lock();
        sites.all.iter().filter_map(Weak::upgrade).filter(|site| site.live.load(Relaxed) > 0).collect()
    }
}

impl AllocationSites {
    fn add(&mut self, site: &Arc<AllocationSite>) {
        if self.all.len() >= self.most {
            self.all.retain(|site| site.strong_count() > 0);
            self.most = 2 * self.all.len() + 64;
        }
        self.all.push(Arc::downgrade(site));
    }
}

impl AllocationSite {
    /// Counts a value of this site. `bytes` returns its size on the device, and is called for the first one.
    pub(crate) fn hold(self: &Arc<Self>, bytes: impl FnOnce() -> u64) -> LiveValue {
        let bytes = *self.bytes.get_or_init(bytes);
        self.live.fetch_add(1, Relaxed);
        self.ledger.live.fetch_add(bytes, Relaxed);
        LiveValue(Arc::clone(self))
    }

    /// Returns the size of one value, or 0 before there was one.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get().copied().unwrap_or(0)
    }

    fn live_bytes(&self) -> u64 {
        self.live.load(Relaxed) as u64 * self.bytes()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::TENSORS[usize::from(self.kind.load(Relaxed))]
    }

    fn op(&self) -> Label {
        self.op.get().copied().unwrap_or("")
    }

    /// Notes that a further run reads an uploaded value.
    pub(crate) fn read_again(&self) {
        if self.kind() == MemoryKind::Batches {
            self.kind.store(MemoryKind::Parameters as u8, Relaxed);
        }
    }

    /// Notes the op that makes the value.
    pub(crate) fn set_op(&self, op: Label) {
        self.op.get_or_init(|| op);
    }

    /// Notes the stack that recorded the op, unless one is known. Returns whether one is known now.
    pub(crate) fn set_stack(&self, stack: Option<&Stack>) -> bool {
        if let Some(stack) = stack {
            self.stack.get_or_init(|| stack.clone());
        }
        self.stack.get().is_some()
    }
}

impl LiveValue {
    pub(crate) fn site(&self) -> &Arc<AllocationSite> {
        &self.0
    }
}

impl Drop for LiveValue {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
        self.0.ledger.live.fetch_sub(self.0.bytes(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::DType;

    fn ty() -> TensorType {
        TensorType::new(DType::F32, [2, 3])
    }

    #[test]
    fn values_are_counted_by_kind_until_they_are_dropped() {
        let ledger = Arc::<Ledger>::default();
        let weight = ledger.result(ty(), Role::Parameter);
        let held = [weight.hold(|| 24), weight.hold(|| unreachable!("the size is known"))];
        let batch = ledger.upload(ty()).hold(|| 512);
        assert_eq!(ledger.live(), 560);
        assert_eq!(ledger.by_kind(), MemoryUse { parameters: 48, batches: 512, ..MemoryUse::default() });
        batch.site().read_again();
        assert_eq!(ledger.by_kind(), MemoryUse { parameters: 560, ..MemoryUse::default() });
        ledger.ran(40);
        drop((held, batch));
        assert_eq!((ledger.live(), ledger.by_kind()), (0, MemoryUse::default()));
        ledger.ran(10);
        assert_eq!(ledger.peak(), MemoryUse { parameters: 560, temporaries: 40, ..MemoryUse::default() });
    }

    #[test]
    fn the_largest_values_of_one_site_are_one_entry() {
        let ledger = Arc::<Ledger>::default();
        let loss = ledger.result(TensorType::new(DType::F32, [1]), Role::Value);
        loss.set_op("float_mean");
        let kept: Vec<LiveValue> = (0..5).map(|_| loss.hold(|| 4)).collect();
        let uploads: Vec<LiveValue> = (0..3).map(|_| ledger.upload(ty()).hold(|| 24)).collect();
        let largest = ledger.largest(|_| Some("src/data.rs:7".to_owned()));
        let found: Vec<_> = largest.iter().map(|found| (found.op.as_str(), found.count, found.bytes)).collect();
        assert_eq!(found, [("from_data", 3, 72), ("float_mean", 5, 20)]);
        assert_eq!((largest[0].line.as_deref(), &largest[1].line), (Some("src/data.rs:7"), &None));
        drop((kept, uploads));
    }

    #[test]
    fn dropped_sites_are_removed() {
        let ledger = Arc::<Ledger>::default();
        for _ in 0..10_000 {
            drop(ledger.upload(ty()).hold(|| 24));
        }
        assert!(ledger.sites.lock().all.len() < 200);
    }
}
