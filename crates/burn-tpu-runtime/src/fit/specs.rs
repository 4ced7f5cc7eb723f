//! Specifications and prices of the TPU generations. `tpu-specs.toml` contains the data with its sources; a user can
//! replace it at run time.

use crate::device::Generation;
use crate::error::{Result, TpuError};
use serde::{Deserialize, Serialize};

/// The figures of one generation, per chip unless the name says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The memory of a chip in GiB.
    pub hbm_gib: f64,
    /// The part of the memory that the compiler lets a program use on one device, in GiB.
    pub usable_hbm_gib_per_device: f64,
    /// The number of devices per chip.
    pub devices_per_chip: u32,
    /// The memory bandwidth in 10^9 bytes per second.
    pub hbm_gb_per_s: f64,
    /// The bandwidth of a chip's links to other chips, all together, in 10^9 bytes per second.
    pub ici_gb_per_s: f64,
    /// A chip's part of the data center's network, which connects slices, in 10^9 bytes per second, if it is published.
    pub dcn_gb_per_s: Option<f64>,
    /// The peak rate of bf16 matrix products in 10^12 operations per second.
    pub bf16_tflops: f64,
    /// The edge length of the matrix unit.
    pub mxu_tile: u32,
    /// The clock of the cycles that the compiler estimates, in GHz, if it was calibrated.
    pub estimate_ghz: Option<f64>,
    /// The list price in US dollars per chip and hour, if there is one.
    pub usd_per_chip_hour: Option<f64>,
}

/// The figures of all generations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specs {
    /// The date of the prices: year and month.
    pub priced: String,
    /// TPU v4.
    pub v4: Spec,
    /// TPU v5e.
    pub v5e: Spec,
    /// TPU v5p.
    pub v5p: Spec,
    /// TPU v6e.
    pub v6e: Spec,
    /// TPU7x.
    pub tpu7x: Spec,
}

impl Specs {
    /// Returns the figures in `tpu-specs.toml`, which names their sources and the date of its prices.
    ///
    /// # Errors
    /// Only if the file that this crate was built with is invalid.
    pub fn builtin() -> Result<Self> {
        Self::parse(include_str!("tpu-specs.toml"))
    }

    /// Parses other figures (negotiated prices, another region), in the format of `tpu-specs.toml`.
    ///
    /// # Errors
    /// [`TpuError::Option`] with the invalid line.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| TpuError::Option {
            name: "TPU specifications".into(),
            value: error.span().and_then(|span| text.get(span)).unwrap_or_default().into(),
            rule: error.message().into(),
        })
    }

    /// Returns the figures of one generation.
    pub fn of(&self, generation: Generation) -> &Spec {
        match generation {
            Generation::V4 => &self.v4,
            Generation::V5e => &self.v5e,
            Generation::V5p => &self.v5p,
            Generation::V6e => &self.v6e,
            Generation::Tpu7x => &self.tpu7x,
        }
    }
}

impl Spec {
    /// Returns the memory that the compiler lets a program use on one device, in bytes.
    pub fn usable_bytes(&self) -> u64 {
        (self.usable_hbm_gib_per_device * (1u64 << 30) as f64) as u64
    }

    /// Returns one device's share of the chip's peak rate, in operations per second.
    pub fn flops_per_second(&self) -> f64 {
        self.bf16_tflops * 1e12 / f64::from(self.devices_per_chip)
    }

    /// Returns one device's share of the chip's bandwidth, in bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.hbm_gb_per_s * 1e9 / f64::from(self.devices_per_chip)
    }

    /// Returns one device's share of the bandwidth of the chip's links, in bytes per second.
    pub fn link_bytes_per_second(&self) -> f64 {
        self.ici_gb_per_s * 1e9 / f64::from(self.devices_per_chip)
    }

    /// Returns one device's share of the data center's network, in bytes per second, if it is published.
    pub fn network_bytes_per_second(&self) -> Option<f64> {
        Some(self.dcn_gb_per_s? * 1e9 / f64::from(self.devices_per_chip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builtin_figures_parse_and_prices_can_be_replaced() {
        let specs = Specs::builtin().unwrap();
        assert_eq!(specs.of(Generation::V5e).hbm_gb_per_s, 819.0);
        assert_eq!(specs.of(Generation::Tpu7x).usd_per_chip_hour, None);
        let text = include_str!("tpu-specs.toml").replace("usd_per_chip_hour = 1.20", "usd_per_chip_hour = 0.5");
        assert_eq!(Specs::parse(&text).unwrap().v5e.usd_per_chip_hour, Some(0.5));
    }

    #[test]
    fn a_misspelt_name_is_an_error_that_shows_it() {
        let text = include_str!("tpu-specs.toml").replace("hbm_gb_per_s = 819", "bandwidth = 819");
        let error = Specs::parse(&text).unwrap_err();
        assert!(error.to_string().contains("bandwidth"), "{error}");
    }
}
