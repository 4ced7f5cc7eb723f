//! [`Layers`] as a module of Burn: its parameters are the stacks, its flags those of its blocks.

use super::Layers;
use super::stack::Stack;
use burn::module::{
    Content, Devices, Flag, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param,
};
use burn::tensor::Device;
use burn_tpu_runtime::layers::ALL_LAYERS;

/// What Burn does with all parts of a module.
pub(super) enum Change<'d> {
    Fork(&'d Device),
    ToDevice(&'d Device),
    Train,
    Valid,
}

impl Change<'_> {
    /// Returns a module after the change.
    pub(super) fn of<M: Module>(&self, module: M) -> M {
        match self {
            Self::Fork(device) => module.fork(device),
            Self::ToDevice(device) => module.to_device(device),
            Self::Train => module.train(),
            Self::Valid => module.valid(),
        }
    }
}

impl<M: Module> Layers<M> {
    fn changed(self, change: &Change<'_>) -> Self {
        let stacks = self.stacks.into_iter().map(|stack| stack.changed(change)).collect();
        let blocks = self.blocks.into_iter().map(|block| change.of(block)).collect();
        Self { stacks, blocks, ..self }
    }
}

impl<M: Module> Module for Layers<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        let devices = self.stacks.iter().fold(devices, |devices, stack| stack.collect_devices(devices));
        self.blocks.iter().fold(devices, |devices, block| block.collect_devices(devices))
    }

    fn fork(self, device: &Device) -> Self {
        self.changed(&Change::Fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.changed(&Change::ToDevice(device))
    }

    fn train(self) -> Self {
        self.changed(&Change::Train)
    }

    fn valid(&self) -> Self {
        self.clone().changed(&Change::Valid)
    }

    fn materialize(self) -> Self {
        if !self.stacks.iter().any(Stack::is_of_reparameterization) {
            return self;
        }
        let keep = self.keep.clone();
        // Equal blocks stay equal.
        match Self::new(self.into_blocks().into_iter().map(Module::materialize).collect()) {
            Ok(layers) => layers.with_keep(keep),
            Err(error) => panic!("burn-tpu: {error}"),
        }
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.stacks.iter().for_each(|stack| stack.visit(visitor));
        let (name, container) = ALL_LAYERS;
        visitor.enter_module(name, container);
        self.blocks.iter().for_each(|block| block.visit(&mut FlagsFor(visitor)));
        visitor.exit_module(name, container);
    }

    fn map<Mapper: ModuleMapper>(self, mapper: &mut Mapper) -> Self {
        let stacks = self.stacks.into_iter().map(|stack| stack.map(mapper)).collect();
        let (name, container) = ALL_LAYERS;
        mapper.enter_module(name, container);
        let blocks = self.blocks.into_iter().map(|block| block.map(&mut FlagsFor(mapper))).collect();
        mapper.exit_module(name, container);
        Self { stacks, blocks, ..self }
    }
}

/// Shows a block's flags to a visitor or a mapper, and none of its tensors.
struct FlagsFor<'v, V>(&'v mut V);

impl<V: ModuleVisitor> ModuleVisitor for FlagsFor<'_, V> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.enter_module(name, container);
    }

    fn exit_module(&mut self, name: &str, container: &str) {
        self.0.exit_module(name, container);
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.visit_flag(flag);
    }
}

impl<V: ModuleMapper> ModuleMapper for FlagsFor<'_, V> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.enter_module(name, container);
    }

    fn exit_module(&mut self, name: &str, container: &str) {
        self.0.exit_module(name, container);
    }

    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        self.0.map_flag(flag)
    }
}

impl<M: Module> ModuleDisplayDefault for Layers<M> {
    fn content(&self, content: Content) -> Option<Content> {
        let content = content.add("layers", &self.layers);
        let stacks = self.stacks.iter();
        stacks.fold(content, |content, stack| content.add(&stack.name(), &format!("{:?}", stack.shape()))).optional()
    }
}

impl<M: Module> ModuleDisplay for Layers<M> {}
