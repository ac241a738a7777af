//! Calls of kernels, and the submits that carry them to the driver.
//!
//! A call is a pipeline, its buffers, and up to 256 bytes of parameters: the views of its tensors, then words. Parameters of
//! many calls travel in one uniform buffer, so no adapter's support of anything is needed for them. Calls are kept until
//! somebody waits or until they are enough work for one submit: a driver ends what runs for seconds.

use std::collections::HashMap;
use std::num::NonZero;

use wgpu::{BindGroupEntry, BindGroupLayoutEntry, BindingResource, BindingType, BufferBinding, BufferBindingType};

use super::core::Core;
use super::device::State;
use super::memory::{Part, Window};
use super::shader::Kernel;
use crate::device::DeviceError;
use crate::tensor::Tensor;

/// Bytes of a call's parameters.
const SLOT: usize = 256;
/// Calls in a submit.
const SLOTS: usize = 512;

/// A compiled kernel.
#[derive(Clone)]
struct Pipeline {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

/// A call that has not been submitted yet.
struct Recorded {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    grid: [u32; 2],
}

/// Compiled kernels, and calls that wait.
pub(super) struct Queue {
    pipelines: HashMap<Kernel, Pipeline>,
    waiting: Vec<Recorded>,
    /// Parameters of the waiting calls, `SLOT` bytes each.
    parameters: Vec<u8>,
    uniforms: wgpu::Buffer,
    /// Multiply-adds of the waiting calls.
    work: u64,
}

impl Queue {
    pub(super) fn new(device: &wgpu::Device) -> Self {
        let uniforms = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("parameters"),
            size: (SLOT * SLOTS) as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Self { pipelines: HashMap::new(), waiting: Vec::new(), parameters: Vec::new(), uniforms, work: 0 }
    }

    /// Hands the waiting calls to the driver.
    pub(super) fn submit(&mut self, core: &Core) {
        if self.waiting.is_empty() {
            return;
        }
        core.queue.write_buffer(&self.uniforms, 0, &self.parameters);
        let mut encoder = core.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for (slot, call) in self.waiting.drain(..).enumerate() {
            pass.set_pipeline(&call.pipeline);
            pass.set_bind_group(0, &call.bind_group, &[(slot * SLOT) as u32]);
            pass.dispatch_workgroups(call.grid[0], call.grid[1], 1);
        }
        drop(pass);
        core.queue.submit([encoder.finish()]);
        self.parameters.clear();
        self.work = 0;
    }

    fn pipeline(&mut self, core: &Core, kernel: Kernel, read_only: &[bool]) -> Result<Pipeline, DeviceError> {
        if let Some(pipeline) = self.pipelines.get(&kernel) {
            return Ok(pipeline.clone());
        }
        let scope = core.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let pipeline = compile(core, kernel, read_only);
        if let Some(error) = pollster::block_on(scope.pop()) {
            return Err(core.failed(format!("kernel {} for {:?}: {error}", kernel.entry, kernel.format)));
        }
        self.pipelines.insert(kernel, pipeline.clone());
        Ok(pipeline)
    }
}

fn compile(core: &Core, kernel: Kernel, read_only: &[bool]) -> Pipeline {
    let buffer = |binding: usize, ty, has_dynamic_offset| BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
        count: None,
    };
    let storage = read_only
        .iter()
        .enumerate()
        .map(|(i, &read_only)| buffer(i + 1, BufferBindingType::Storage { read_only }, false));
    let entries: Vec<_> = std::iter::once(buffer(0, BufferBindingType::Uniform, true)).chain(storage).collect();
    let layout =
        core.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
    let pipeline_layout = core.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: Some(kernel.entry),
        source: wgpu::ShaderSource::Wgsl(kernel.source().into()),
    };
    let checks = if core.options.checked {
        wgpu::ShaderRuntimeChecks::checked()
    } else {
        wgpu::ShaderRuntimeChecks::unchecked()
    };
    // SAFETY: `Op::check` and `memory::window` have found every element of an operand inside its buffer; kernels index with
    // nothing else but a plan's own rows and ids they have compared with their limits. Their loops end.
    let module = unsafe { core.device.create_shader_module_trusted(descriptor, checks) };
    let pipeline = core.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(kernel.entry),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(kernel.entry),
        // Kernels write shared memory before they read it.
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    });
    Pipeline { pipeline, layout }
}

/// A call in the making.
pub(super) struct Call<'a> {
    core: &'a Core,
    kernel: Kernel,
    bound: Vec<(Window, bool)>,
    /// Views and parts, four words or eight each.
    head: Vec<u32>,
    /// The parameters behind them, with the names that the kernel has for them.
    parameters: Vec<(&'static str, u32)>,
    work: u64,
}

impl<'a> Call<'a> {
    pub(super) fn new(core: &'a Core, kernel: Kernel) -> Self {
        Self { core, kernel, bound: Vec::new(), head: Vec::new(), parameters: Vec::new(), work: 0 }
    }

    fn view(mut self, t: &Tensor, written: bool) -> Result<Self, DeviceError> {
        let (window, view) = self.core.window(t, written)?;
        self.bound.push((window, false));
        self.head.extend(view);
        Ok(self)
    }

    /// A tensor that is read. Bindings come in the order of the calls of these functions, views likewise.
    pub(super) fn input(self, t: &Tensor) -> Result<Self, DeviceError> {
        self.view(t, false)
    }

    /// A tensor that is written.
    pub(super) fn output(self, t: &Tensor) -> Result<Self, DeviceError> {
        self.view(t, true)
    }

    /// A tensor, or in its place a buffer that the kernel does not look at.
    pub(super) fn optional(mut self, t: Option<&Tensor>) -> Result<Self, DeviceError> {
        match t {
            Some(t) => self.input(t),
            None => {
                self.bound.push((self.core.nothing.clone(), false));
                self.head.extend([0; 4]);
                Ok(self)
            }
        }
    }

    /// Memory with a view that the kernel does not look at.
    pub(super) fn unviewed(mut self, window: &Window) -> Self {
        self.bound.push((window.clone(), false));
        self.head.extend([0; 4]);
        self
    }

    /// The part of a weight that is in one buffer; `part` goes to the head.
    pub(super) fn part(self, part: &Part) -> Self {
        self.part_as(part, true)
    }

    fn part_as(mut self, part: &Part, read_only: bool) -> Self {
        self.bound.push((part.window.clone(), read_only));
        self.head.extend(part.words);
        self
    }

    /// Memory that has no view: words from its start.
    pub(super) fn buffer(mut self, window: &Window) -> Self {
        self.bound.push((window.clone(), false));
        self
    }

    /// The parts of two weights, bound as the kernel declares them, and the codebooks.
    pub(super) fn weights(self, first: &Part, second: &Part, read_only: bool) -> Self {
        self.part_as(first, read_only).part_as(second, read_only).codebooks()
    }

    /// The codebooks.
    pub(super) fn codebooks(mut self) -> Self {
        self.bound.push((self.core.codebooks.clone(), true));
        self
    }

    /// Parameters behind the number of workgroups, under their names in the kernel and in its order; tests compare them.
    pub(super) fn parameters(mut self, parameters: &[(&'static str, u32)]) -> Self {
        self.parameters.extend_from_slice(parameters);
        self
    }

    /// Whether the kernel has the parameters that it is called with.
    fn check_names(&self) -> Result<(), DeviceError> {
        let (wanted, found) = (self.kernel.file.parameters(), self.parameters.iter().map(|(name, _)| *name));
        if wanted.iter().copied().eq(found) {
            return Ok(());
        }
        Err(self.core.failed(format!("{} takes {wanted:?}, not {:?}", self.kernel.entry, self.parameters)))
    }

    /// How many multiply-adds the call is, where they matter.
    pub(super) fn work(mut self, work: u64) -> Self {
        self.work = work;
        self
    }

    /// A thread for each of `total` items, 256 in a group; `total` is the last word.
    pub(super) fn threads(mut self, state: &mut State, total: usize) -> Result<(), DeviceError> {
        self.parameters.push(("total", self.core.word("a number of threads", total)?));
        self.groups(state, total.div_ceil(256))
    }

    /// Enqueues the call for so many workgroups.
    pub(super) fn groups(self, state: &mut State, groups: usize) -> Result<(), DeviceError> {
        let count = self.core.word("a number of workgroups", groups)?;
        self.groups_of(state, groups, count)
    }

    /// The same, where the kernel counts its workgroups itself.
    pub(super) fn groups_of(self, state: &mut State, groups: usize, count: u32) -> Result<(), DeviceError> {
        if groups == 0 {
            return Ok(());
        }
        let core = self.core;
        if core.options.checked {
            self.check_names()?;
        }
        let limit = core.max_groups;
        let across = groups.min(limit);
        let down = groups.div_ceil(across);
        if down > limit {
            return Err(core.unsupported(format!("{groups} workgroups: the adapter has {limit} in each direction")));
        }
        let read_only: Vec<bool> = self.bound.iter().map(|(_, read_only)| *read_only).collect();
        let queue = &mut state.queue;
        let pipeline = queue.pipeline(core, self.kernel, &read_only)?;
        if queue.waiting.len() == SLOTS || (queue.work > 0 && queue.work + self.work > core.options.work_per_submit) {
            queue.submit(core);
        }
        let parameters = self.parameters.iter().map(|(_, word)| *word);
        let words: Vec<u32> = self.head.iter().copied().chain([count]).chain(parameters).collect();
        let mut slot = [0; SLOT];
        slot[..words.len() * 4].copy_from_slice(bytemuck::cast_slice(&words));
        queue.parameters.extend_from_slice(&slot);
        queue.work += self.work;
        let uniform = BufferBinding { buffer: &queue.uniforms, offset: 0, size: NonZero::new(SLOT as u64) };
        let storage = self.bound.iter().enumerate().map(|(i, (window, _))| BindGroupEntry {
            binding: i as u32 + 1,
            resource: BindingResource::Buffer(BufferBinding {
                buffer: &window.buffer,
                offset: window.offset,
                size: NonZero::new(window.size),
            }),
        });
        let entries: Vec<_> =
            std::iter::once(BindGroupEntry { binding: 0, resource: BindingResource::Buffer(uniform) })
                .chain(storage)
                .collect();
        let bind_group = core.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.layout,
            entries: &entries,
        });
        queue.waiting.push(Recorded { pipeline: pipeline.pipeline, bind_group, grid: [across as u32, down as u32] });
        Ok(())
    }
}
