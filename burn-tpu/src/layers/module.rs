//! [`Layers`] as a module of Burn: its parameters are the stacks, its record is that of a `Vec` of blocks.

use super::Layers;
use super::stack::{Modules, Stack};
use burn_core::module::{
    AutodiffModule, Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn_core::tensor::backend::{AutodiffBackend, Backend};

impl<B: Backend, M: Module<B>> Module<B> for Layers<B, M> {
    type Record = Vec<M::Record>;

    fn collect_devices(&self, devices: Devices<B>) -> Devices<B> {
        let devices = self.stacks.iter().fold(devices, |devices, stack| stack.collect_devices(devices));
        self.blocks.iter().fold(devices, |devices, block| block.collect_devices(devices))
    }

    fn fork(self, device: &B::Device) -> Self {
        struct Fork<'d, B: Backend>(&'d B::Device);
        impl<B: Backend> Modules<B> for Fork<'_, B> {
            fn of<M: Module<B>>(&self, module: M) -> M {
                module.fork(self.0)
            }
        }
        let stacks = self.stacks.into_iter().map(|stack| stack.with_module(Fork::<B>(device))).collect();
        let blocks = self.blocks.into_iter().map(|block| block.fork(device)).collect();
        Self { stacks, blocks, ..self }
    }

    fn to_device(self, device: &B::Device) -> Self {
        struct ToDevice<'d, B: Backend>(&'d B::Device);
        impl<B: Backend> Modules<B> for ToDevice<'_, B> {
            fn of<M: Module<B>>(&self, module: M) -> M {
                module.to_device(self.0)
            }
        }
        let stacks = self.stacks.into_iter().map(|stack| stack.with_module(ToDevice::<B>(device))).collect();
        let blocks = self.blocks.into_iter().map(|block| block.to_device(device)).collect();
        Self { stacks, blocks, ..self }
    }

    fn visit<V: ModuleVisitor<B>>(&self, visitor: &mut V) {
        self.stacks.iter().for_each(|stack| stack.visit(visitor));
    }

    fn map<Mapper: ModuleMapper<B>>(self, mapper: &mut Mapper) -> Self {
        let stacks = self.stacks.into_iter().map(|stack| stack.map(mapper)).collect();
        Self { stacks, ..self }
    }

    /// # Panics
    /// If the record has another number of blocks, or blocks that differ in more than their values.
    fn load_record(self, record: Self::Record) -> Self {
        assert_eq!(self.layers, record.len(), "burn-tpu: layers: the record has another number of layers");
        let keep = self.keep.clone();
        let blocks = self.into_blocks().into_iter().zip(record).map(|(block, record)| block.load_record(record));
        match Self::new(blocks.collect()) {
            Ok(loaded) => loaded.with_keep(keep),
            // Burn's contract: `load_record` returns no error.
            Err(error) => panic!("burn-tpu: {error}"),
        }
    }

    fn into_record(self) -> Self::Record {
        self.into_blocks().into_iter().map(Module::into_record).collect()
    }
}

impl<B: AutodiffBackend, M: AutodiffModule<B>> AutodiffModule<B> for Layers<B, M> {
    type InnerModule = Layers<B::InnerBackend, M::InnerModule>;

    fn valid(&self) -> Self::InnerModule {
        let blocks = self.blocks.iter().map(AutodiffModule::valid).collect();
        let stacks = self.stacks.iter().map(Stack::valid).collect();
        Layers { layers: self.layers, blocks, stacks, keep: self.keep.clone() }
    }

    fn from_inner(module: Self::InnerModule) -> Self {
        let blocks = module.blocks.into_iter().map(M::from_inner).collect();
        let stacks = module.stacks.into_iter().map(Stack::from_inner).collect();
        Self { layers: module.layers, blocks, stacks, keep: module.keep }
    }
}

impl<B: Backend, M: Module<B>> ModuleDisplayDefault for Layers<B, M> {
    fn content(&self, content: Content) -> Option<Content> {
        let content = content.add("layers", &self.layers);
        let stacks = self.stacks.iter();
        stacks.fold(content, |content, stack| content.add(&stack.name(), &format!("{:?}", stack.shape()))).optional()
    }
}

impl<B: Backend, M: Module<B>> ModuleDisplay for Layers<B, M> {}
