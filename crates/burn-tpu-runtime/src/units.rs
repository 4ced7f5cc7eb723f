//! Numbers with units, for people.

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns a number of bytes as `17 B`, `1.5 KiB`, `20.0 MiB` or `3.25 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..MIB => format!("{:.1} KiB", bytes as f64 / KIB as f64),
        MIB..GIB => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        GIB.. => format!("{:.2} GiB", bytes as f64 / GIB as f64),
    }
}
