//! Plans of every variant, word for word those of `argon_plan`, in polluted memory.

use argon_kernels::cuda::{CudaDevice, CudaOptions, PlanVariant};
use argon_kernels::device::tensor;
use argon_kernels::op::{Plan as PlanOp, PlanBuffers};
use argon_kernels::{DType, Device, Tensor};
use argon_plan::{Plan, Shape, Variant, check_untouched, compare};

use crate::support::weights::Rng;
use crate::{gpu, options};

const POLLUTION: u32 = 0xDEAD_BEEF;

/// How ids are drawn.
#[derive(Clone, Copy, Debug)]
enum Ids {
    Uniform,
    /// A few experts get most.
    Skewed,
    /// Every entry to one expert.
    One,
    /// Every entry skipped.
    Skipped,
    /// The same expert in all entries of a token.
    Duplicates,
    /// Skipped, rejected and extreme ones among others.
    Bad,
}

const ALL: [Ids; 6] = [Ids::Uniform, Ids::Skewed, Ids::One, Ids::Skipped, Ids::Duplicates, Ids::Bad];

impl Ids {
    fn draw(self, shape: Shape, rng: &mut Rng) -> Vec<i32> {
        let e = shape.experts();
        let one = |i: usize, rng: &mut Rng| match self {
            Ids::Uniform => rng.below(e) as i32,
            Ids::Skewed => (rng.below(e) * rng.below(e) / e * rng.below(e) / e) as i32,
            Ids::One => (e - 1) as i32,
            Ids::Skipped => -1,
            Ids::Duplicates => (i / shape.top_k() * 7 % e) as i32,
            Ids::Bad => [-1, -2, e as i32, i32::MIN, i32::MAX, rng.below(e) as i32, 0, (e - 1) as i32][rng.below(8)],
        };
        (0..shape.entries()).map(|i| one(i, rng)).collect()
    }
}

/// Runs a plan on a device into polluted memory and brings all of it back.
fn run(device: &CudaDevice, shape: Shape, ids: &[i32], weights: &[u32]) -> Plan {
    let buffers = PlanBuffers::new(device, shape).unwrap();
    let all = [
        &buffers.bcnt,
        &buffers.boff,
        &buffers.eoff,
        &buffers.tiles,
        &buffers.stok,
        &buffers.sw,
        &buffers.pos,
        &buffers.meta,
    ];
    for t in all {
        device.write(t, &POLLUTION.to_ne_bytes().repeat(t.len())).unwrap();
    }
    let (t, k) = (shape.tokens(), shape.top_k());
    let dense = |dtype, bytes: &[u8]| -> Tensor {
        let tensor = tensor(device, dtype, t, 1, k).unwrap();
        device.write(&tensor, bytes).unwrap();
        tensor
    };
    let ids = dense(DType::I32, bytemuck::cast_slice(ids));
    let weights = dense(DType::F32, bytemuck::cast_slice(weights));
    device.enqueue(&PlanOp { ids, weights, plan: buffers.clone() }.into()).unwrap();
    let mut plan = Plan::filled(shape, 0, 0);
    let words = plan.buffers();
    device.read(&buffers.bcnt, bytemuck::cast_slice_mut(words.bcnt)).unwrap();
    device.read(&buffers.boff, bytemuck::cast_slice_mut(words.boff)).unwrap();
    device.read(&buffers.eoff, bytemuck::cast_slice_mut(words.eoff)).unwrap();
    device.read(&buffers.tiles, bytemuck::cast_slice_mut(words.tiles)).unwrap();
    device.read(&buffers.stok, bytemuck::cast_slice_mut(words.stok)).unwrap();
    device.read(&buffers.sw, bytemuck::cast_slice_mut(words.sw)).unwrap();
    device.read(&buffers.pos, bytemuck::cast_slice_mut(words.pos)).unwrap();
    device.read(&buffers.meta, bytemuck::cast_slice_mut(words.meta)).unwrap();
    plan
}

fn check(device: &CudaDevice, variant: PlanVariant, shape: Shape, kind: Ids) {
    let mut rng = Rng::new((shape.entries() * 31 + shape.experts()) as u64);
    let ids = kind.draw(shape, &mut rng);
    let weights: Vec<u32> = (0..shape.entries()).map(|_| rng.bits() as u32).collect();
    let want = Plan::build_lenient(shape, &ids, &weights, Variant::default()).unwrap();
    let got = run(device, shape, &ids, &weights);
    let what = || format!("{} of {kind:?} {shape:?}", variant.name());
    compare(&want, &got).unwrap_or_else(|difference| panic!("{}: {difference}", what()));
    check_untouched(&got, POLLUTION).unwrap_or_else(|difference| panic!("{}: beside: {difference}", what()));
}

fn of_variant(variant: PlanVariant, shapes: &[[usize; 4]]) {
    if gpu().is_none() {
        return;
    }
    let device = CudaDevice::new(CudaOptions { plan: variant, ..options() }).unwrap();
    for &[tokens, top_k, experts, tile] in shapes {
        let shape = Shape::new(tokens, top_k, experts, tile).unwrap();
        for kind in ALL {
            check(&device, variant, shape, kind);
        }
    }
}

/// For the memory checkers: every variant, over several blocks of entries.
pub fn a_few() {
    for variant in PlanVariant::ALL {
        of_variant(variant, &[[700, 9, 33, 16]]);
    }
}

/// T, K, E, tile height: one block and several, E around the warp and the block, entries across 65535.
const SHAPES: [[usize; 4]; 13] = [
    [0, 3, 8, 8],
    [1, 1, 1, 1],
    [7, 1, 3, 16],
    [64, 16, 33, 8],
    [341, 3, 129, 8],
    [103, 10, 257, 16],
    [512, 2, 31, 32],
    [700, 9, 511, 16],
    [2048, 10, 512, 64],
    [300, 7, 1025, 8],
    [513, 4, 4095, 8],
    [5461, 12, 127, 192],
    [9000, 8, 300, 100],
];

#[test]
fn serial() {
    of_variant(PlanVariant::Serial, &SHAPES);
}

#[test]
fn packed() {
    of_variant(PlanVariant::Packed, &SHAPES);
}

#[test]
fn fused() {
    of_variant(PlanVariant::Fused, &SHAPES);
}

#[test]
fn alone() {
    of_variant(PlanVariant::Alone, &SHAPES);
}

#[test]
fn two_launches() {
    of_variant(PlanVariant::Two, &SHAPES);
}

#[test]
fn three_launches() {
    of_variant(PlanVariant::Three, &SHAPES);
}

/// What a model runs, for every K from 1 to 16; and entries across 2^20.
#[test]
fn auto() {
    of_variant(PlanVariant::Auto, &[(1 << 20) / 10, (1 << 20) / 10 + 1].map(|tokens| [tokens, 10, 512, 192]));
    let shapes: Vec<[usize; 4]> = (1..=16).map(|k| [1500 / k + k, k, 16 + 97 * k, 8 << (k % 4)]).collect();
    of_variant(PlanVariant::Auto, &shapes);
    of_variant(PlanVariant::Auto, &SHAPES);
    of_variant(PlanVariant::Auto, &[[100, 2, 4096, 8], [40, 2, 9000, 8]]);
}

/// A plan replayed from a recording writes the same words.
#[test]
fn recorded() {
    let Some(device) = gpu() else { return };
    let shape = Shape::new(500, 10, 512, 16).unwrap();
    let buffers = PlanBuffers::new(&*device, shape).unwrap();
    let ids = tensor(&*device, DType::I32, 500, 1, 10).unwrap();
    let weights = tensor(&*device, DType::F32, 500, 1, 10).unwrap();
    let op = PlanOp { ids: ids.clone(), weights, plan: buffers.clone() }.into();
    device.enqueue(&op).unwrap();
    let graph = device.record(|| device.enqueue(&op)).unwrap();
    let drawn = Ids::Uniform.draw(shape, &mut Rng::new(5));
    device.write(&ids, bytemuck::cast_slice(&drawn)).unwrap();
    device.replay(&graph).unwrap();
    let mut pos = vec![0i32; shape.entries()];
    device.read(&buffers.pos, bytemuck::cast_slice_mut(&mut pos)).unwrap();
    let want = Plan::build_lenient(shape, &drawn, &vec![0; shape.entries()], Variant::default()).unwrap();
    assert_eq!(pos, want.pos());
}
