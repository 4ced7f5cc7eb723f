//! Where a visit of a front end's module is.

/// What a visitor is told that it enters at the parameters of stacked layers: the name that stands for all layers, and
/// what contains it.
pub const ALL_LAYERS: (&str, &str) = ("*", "Layers");

/// The names of the modules that are being visited, and how many of them are stacked layers: so many of a parameter's
/// first dims are layers.
#[derive(Default)]
pub struct ModulePath {
    names: Vec<String>,
    layers: usize,
}

impl ModulePath {
    /// Notes that the visit enters a module, by its name and what contains it.
    pub fn enter(&mut self, name: &str, container: &str) {
        self.names.push(name.to_owned());
        self.layers += usize::from(container == ALL_LAYERS.1);
    }

    /// Notes that the visit leaves a module.
    pub fn exit(&mut self, container: &str) {
        self.names.pop();
        self.layers -= usize::from(container == ALL_LAYERS.1);
    }

    /// Returns the names, joined with `.`.
    pub fn joined(&self) -> String {
        self.names.join(".")
    }

    /// Divides a parameter's dims into those of layers and those of one layer's part.
    pub fn split<'d>(&self, dims: &'d [usize]) -> (&'d [usize], &'d [usize]) {
        dims.split_at(self.layers)
    }
}
