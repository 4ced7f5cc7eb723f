//! Rules for where the parameters of a model live on a mesh.
//!
//! Owns the rules, and their application to one parameter. May not know what a model is, which is the front end's.

use crate::graph::TensorType;
use crate::layers::ModulePath;
use crate::ops::sharding::{self, DimNames, names};
use crate::{Device, Result, Tensor, TpuError};

/// The axes that split each dim of a parameter.
pub type Axes = Vec<DimNames>;

/// A parameter to place.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'p> {
    /// The names of the modules around it and its own, joined with `.`: `blocks.0.attention.query.weight`. Of stacked
    /// layers, `*` stands for the layer.
    pub path: &'p str,
    /// Its sizes.
    pub dims: &'p [usize],
    /// Its size in bytes.
    pub bytes: usize,
    /// The mesh that it is on.
    device: Device,
}

impl Parameter<'_> {
    /// Returns the number of chips along an axis of the mesh; along several that are joined with `+`, their product.
    ///
    /// # Errors
    /// [`TpuError::Mesh`] for an axis that does not exist.
    pub fn axis_size(&self, axis: &str) -> Result<usize> {
        names(Some(axis)).iter().map(|name| sharding::axis_size(self.device, name)).product()
    }

    /// Returns the axes that keep the parameter whole on every chip.
    pub fn replicated(&self) -> Axes {
        vec![DimNames::new(); self.dims.len()]
    }
}

/// Says where each parameter of a module lives. See a front end's `place`.
pub trait PlacementRule {
    /// Returns the axes that split each dim of a parameter.
    ///
    /// # Errors
    /// If the rule cannot be applied to the parameter.
    fn axes(&self, parameter: &Parameter<'_>) -> Result<Axes>;

    /// Checks the rule against the paths of all parameters of the module.
    ///
    /// # Errors
    /// If the rule names parameters that do not exist.
    fn check(&self, _paths: &[String]) -> Result<()> {
        Ok(())
    }
}

impl<R: PlacementRule + ?Sized> PlacementRule for &R {
    fn axes(&self, parameter: &Parameter<'_>) -> Result<Axes> {
        (**self).axes(parameter)
    }

    fn check(&self, paths: &[String]) -> Result<()> {
        (**self).check(paths)
    }
}

/// `None` replicates.
impl<R: PlacementRule> PlacementRule for Option<R> {
    fn axes(&self, parameter: &Parameter<'_>) -> Result<Axes> {
        self.as_ref().map_or_else(|| Replicate.axes(parameter), |rule| rule.axes(parameter))
    }

    fn check(&self, paths: &[String]) -> Result<()> {
        self.as_ref().map_or(Ok(()), |rule| rule.check(paths))
    }
}

/// Every chip has all parameters, which is the default: data parallel training.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replicate;

impl PlacementRule for Replicate {
    fn axes(&self, parameter: &Parameter<'_>) -> Result<Axes> {
        Ok(parameter.replicated())
    }
}

/// Fully sharded data parallel: the largest dim of a parameter that divides is split over an axis, and so are its
/// gradient and its optimizer state. The compiler gathers a parameter where a layer needs it.
#[derive(Clone, Copy, Debug)]
pub struct Fsdp<'a> {
    /// The axis, which is usually one that splits batches too; several are joined with `+`, outermost first.
    pub axis: &'a str,
    /// Smaller parameters are replicated: gathering them costs more than their memory is worth.
    pub min_bytes: usize,
}

impl PlacementRule for Fsdp<'_> {
    fn axes(&self, parameter: &Parameter<'_>) -> Result<Axes> {
        let parts = parameter.axis_size(self.axis)?;
        let mut axes = parameter.replicated();
        let divides = |dim: &usize| parameter.dims[*dim] > 0 && parameter.dims[*dim].is_multiple_of(parts);
        // Of equal dims the first.
        let largest = (0..parameter.dims.len()).filter(divides).rev().max_by_key(|&dim| parameter.dims[dim]);
        if let Some(dim) = largest.filter(|_| parameter.bytes >= self.min_bytes) {
            axes[dim] = names(Some(self.axis));
        }
        Ok(axes)
    }
}

/// Rules by path, as for tensor parallel layers. The first pattern that matches a parameter's path applies; the others
/// follow another rule. In a pattern, `*` stands for any part of a path, dots included.
///
/// ```
/// use burn_tpu_runtime::placement::{Fsdp, Patterns};
/// let rule = Patterns::new()
///     .add("blocks.*.attention.query.weight", [None, Some("model")])
///     .add("blocks.*.attention.output.weight", [Some("model"), None])
///     .otherwise(Fsdp { axis: "data", min_bytes: 1 << 20 });
/// ```
pub struct Patterns<R = Replicate> {
    patterns: Vec<(String, Axes)>,
    rest: R,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { patterns: Vec::new(), rest: Replicate }
    }
}

impl Patterns {
    /// Returns no pattern: every parameter is replicated.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<R> Patterns<R> {
    /// Adds a pattern with the axis of each dim; several axes of one dim are joined with `+`, outermost first.
    pub fn add<const D: usize>(mut self, path: impl Into<String>, dims: [Option<&str>; D]) -> Self {
        self.patterns.push((path.into(), dims.map(names).to_vec()));
        self
    }

    /// Sets the rule for the parameters that no pattern matches.
    pub fn otherwise<S: PlacementRule>(self, rest: S) -> Patterns<S> {
        Patterns { patterns: self.patterns, rest }
    }
}

impl<R: PlacementRule> PlacementRule for Patterns<R> {
    fn axes(&self, parameter: &Parameter<'_>) -> Result<Axes> {
        match self.patterns.iter().find(|(pattern, _)| matches(pattern, parameter.path)) {
            Some((_, axes)) => Ok(axes.clone()),
            None => self.rest.axes(parameter),
        }
    }

    fn check(&self, paths: &[String]) -> Result<()> {
        let unused = |(pattern, _): &&(String, Axes)| !paths.iter().any(|path| matches(pattern, path));
        match self.patterns.iter().find(unused) {
            None => self.rest.check(paths),
            Some((pattern, _)) => {
                let known = paths.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
                let rule =
                    format!("matches no parameter; there are {known}{}", if paths.len() > 8 { ", …" } else { "" });
                Err(TpuError::Sharding { what: format!("the pattern {pattern:?}"), rule })
            }
        }
    }
}

/// Returns whether a path matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, rest)) => path.strip_prefix(start).is_some_and(|path| {
            (0..=path.len()).filter(|&i| path.is_char_boundary(i)).any(|i| matches(rest, &path[i..]))
        }),
    }
}

/// The places of a module's parameters, asked of a rule in the order of a visit.
pub struct Plan<'r, R> {
    rule: &'r R,
    /// Where the visit is.
    pub path: ModulePath,
    paths: Vec<String>,
    /// `None` for a parameter that is not on a mesh.
    placed: Vec<Option<Axes>>,
    error: Option<TpuError>,
}

impl<'r, R: PlacementRule> Plan<'r, R> {
    /// Returns a plan without parameters.
    pub fn new(rule: &'r R) -> Self {
        Self { rule, path: ModulePath::default(), paths: Vec::new(), placed: Vec::new(), error: None }
    }

    /// Asks the rule for the axes of the parameter at the path; `None` is one that is not of this backend, and stays.
    pub fn add(&mut self, parameter: Option<&Tensor>) {
        let path = self.path.joined();
        match parameter.map_or(Ok(None), |parameter| self.axes(&path, parameter)) {
            Ok(axes) => self.placed.push(axes),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self.paths.push(path);
    }

    fn axes(&self, path: &str, parameter: &Tensor) -> Result<Option<Axes>> {
        let (device, ty): (Device, &TensorType) = (parameter.device(), parameter.ty());
        if device.as_mesh().is_none() {
            return Ok(None);
        }
        // Of stacked layers, the rule places one, and every chip has a part of each.
        let (layers, dims) = self.path.split(parameter.dims());
        let bytes = ty.bytes() / layers.iter().product::<usize>().max(1);
        let mut axes = self.rule.axes(&Parameter { path, dims, bytes, device })?;
        layers.iter().for_each(|_| axes.insert(0, DimNames::new()));
        sharding::check_even(device, path, ty, &axes)?;
        Ok(Some(axes))
    }

    /// Returns the axes of each parameter; `None` for one that is not on a mesh.
    ///
    /// # Errors
    /// Those of the rule for a parameter, and for the paths of all.
    pub fn finish(self) -> Result<Vec<Option<Axes>>> {
        self.rule.check(&self.paths)?;
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.placed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, path, expected) in [
            ("fc.weight", "fc.weight", true),
            ("fc.weight", "fc.bias", false),
            ("blocks.*.query.weight", "blocks.0.attention.query.weight", true),
            ("blocks.*.query.weight", "blocks.0.attention.key.weight", false),
            ("*weight", "a.b.weight", true),
            ("*", "", true),
            ("a*b*c", "a.b.x.b.c", true),
            ("a*b*c", "a.c.b", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn several_axes_split_one_dim() {
        assert_eq!(names(Some("slice + data")), ["slice", "data"]);
        assert!(names(None).is_empty());
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_an_error() {
        let rule = Patterns::new().add("fc.*", [None]).add("typo", [None]);
        let error = rule.check(&["fc.weight".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("\"typo\": matches no parameter; there are fc.weight"), "{error}");
    }
}
