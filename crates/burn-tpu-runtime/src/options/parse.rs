//! Parsers for values of environment variables. A parser returns the value, or an error with the rule that the text
//! breaks.

use super::{FallbackPolicy, IndexChecks};
use crate::error::{Result, TpuError};
use burn_tpu_fusion::{Optimization, Rewrite, UnknownRewrite};
use burn_tpu_graph::op::Precision;
use std::time::Duration;

/// Returns the text of a variable, or `None` if it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the value of a variable, if it is set.
///
/// # Errors
/// [`TpuError::Option`] with the parser's rule.
pub(super) fn read<T>(name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>> {
    let Some(value) = variable(name) else { return Ok(None) };
    match parse(&value) {
        Ok(parsed) => Ok(Some(parsed)),
        Err(rule) => Err(TpuError::Option { name: name.into(), value, rule }),
    }
}

pub(super) fn text(value: &str) -> Result<String, String> {
    Ok(value.into())
}

pub(super) fn list(value: &str) -> Result<Vec<String>, String> {
    Ok(value.split(',').map(|entry| entry.trim().to_string()).collect())
}

pub(super) fn switch(value: &str) -> Result<bool, String> {
    number::<u8>(0, 1)(value).map(|number| number == 1)
}

pub(super) fn milliseconds(value: &str) -> Result<Duration, String> {
    number(0, u64::MAX)(value).map(Duration::from_millis)
}

pub(super) fn seconds(value: &str) -> Result<Duration, String> {
    number(0, u64::MAX)(value).map(Duration::from_secs)
}

pub(crate) fn number<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> {
    move |value| {
        let in_range = value.parse().ok().filter(|number| (least..=most).contains(number));
        let number = in_range.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("is not a number from {least} to {most}"))
    }
}

pub(super) fn policy(value: &str) -> Result<FallbackPolicy, String> {
    match value {
        "allow" => Ok(FallbackPolicy::Allow),
        "warn" => Ok(FallbackPolicy::Warn),
        "deny" => Ok(FallbackPolicy::Deny),
        _ => Err("is not one of allow, warn, deny".into()),
    }
}

pub(super) fn optimization(value: &str) -> Result<Optimization, String> {
    match value {
        "off" => Ok(Optimization::Off),
        "conservative" => Ok(Optimization::Conservative),
        "balanced" => Ok(Optimization::Balanced),
        "aggressive" => Ok(Optimization::Aggressive),
        _ => Err("is not one of off, conservative, balanced, aggressive".into()),
    }
}

pub(super) fn precision(value: &str) -> Result<Precision, String> {
    match value {
        "default" => Ok(Precision::Default),
        "high" => Ok(Precision::High),
        "highest" => Ok(Precision::Highest),
        _ => Err("is not one of default, high, highest".into()),
    }
}

pub(super) fn rewrites(value: &str) -> Result<Vec<Rewrite>, String> {
    let names = value.split(',').map(str::trim);
    names.map(|name| name.parse().map_err(|error: UnknownRewrite| error.to_string())).collect()
}

pub(super) fn index_checks(value: &str) -> Result<IndexChecks, String> {
    match value {
        "off" => Ok(IndexChecks::Off),
        "host" => Ok(IndexChecks::Host),
        "all" => Ok(IndexChecks::All),
        _ => Err("is not one of off, host, all".into()),
    }
}
