//! How long writing took: for people a few lines, for programs JSON.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The times of a batch of texts.
#[derive(Debug)]
pub struct Timing {
    batch: usize,
    /// From the beginning until each token was read.
    pub tokens: Vec<Duration>,
    /// Time on the calling thread until each decode step was dispatched.
    pub host: Vec<Duration>,
    /// Programs compiled meanwhile.
    pub compiles: u64,
}

/// The JSON report. Other programs read these names: add names, never rename them.
#[derive(Serialize)]
struct Report {
    /// Texts written at once.
    batch: usize,
    /// Tokens of each text.
    tokens: usize,
    /// Time until the first tokens were read: transfer, prefill, choice.
    first_token_ms: f64,
    /// Median time from one token to the next.
    token_ms: f64,
    /// Median time on the calling thread until a decode step is dispatched.
    host_us_per_token: f64,
    /// Programs compiled after the warm-up.
    compiles: u64,
}

impl Timing {
    /// Begins the times of `batch` texts.
    pub fn new(batch: usize) -> Self {
        Self { batch, tokens: Vec::new(), host: Vec::new(), compiles: 0 }
    }

    fn report(&self) -> Report {
        let each = self.tokens.windows(2).map(|pair| 1e3 * (pair[1] - pair[0]).as_secs_f64());
        let host = self.host.iter().map(|time| 1e6 * time.as_secs_f64());
        Report {
            batch: self.batch,
            tokens: self.tokens.len(),
            first_token_ms: self.tokens.first().map_or(0.0, |time| 1e3 * time.as_secs_f64()),
            token_ms: median(each.collect()),
            host_us_per_token: median(host.collect()),
            compiles: self.compiles,
        }
    }

    /// Writes the report as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.report())?;
        std::fs::write(path, json + "\n").with_context(|| format!("cannot write the report to `{}`", path.display()))
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { batch, tokens, first_token_ms, token_ms, host_us_per_token, compiles } = self.report();
        writeln!(f, "\n{batch} texts of {tokens} tokens")?;
        writeln!(f, "first token  {first_token_ms:.2} ms")?;
        writeln!(f, "next tokens  {token_ms:.3} ms each, {:.0} tokens/s", 1e3 * batch as f64 / token_ms)?;
        writeln!(f, "host         {host_us_per_token:.0} us for each token")?;
        write!(f, "compiles     {compiles} after the warm-up")
    }
}

/// Returns the median, or 0 of nothing.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_first_token_and_between_tokens() {
        let ms = Duration::from_millis;
        let tokens = vec![ms(50), ms(52), ms(54), ms(60)];
        let timing = Timing { batch: 2, tokens, host: vec![ms(1); 3], compiles: 0 };
        let report = timing.report();
        assert_eq!((report.first_token_ms, report.token_ms, report.host_us_per_token), (50.0, 2.0, 1000.0));
        assert!(timing.to_string().contains("1000 tokens/s"), "{timing}");
        assert_eq!(median(Vec::new()), 0.0);
    }
}
