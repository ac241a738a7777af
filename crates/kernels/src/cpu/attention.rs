//! Causal softmax attention over a cache.

use half::f16;
use rayon::iter::ParallelIterator;

use super::CpuDevice;
use super::math::{add_scaled, dot, exp, sigmoid};
use super::memory::{Element, View, ViewMut};
use crate::device::DeviceError;
use crate::op::Attention;
use crate::tensor::DType;

pub(super) fn attention(device: &CpuDevice, o: &Attention) -> Result<(), DeviceError> {
    match (o.k.dtype, o.v.dtype) {
        (DType::F16, DType::F16) => attend::<f16, f16>(device, o),
        (DType::F16, _) => attend::<f16, f32>(device, o),
        (_, DType::F16) => attend::<f32, f16>(device, o),
        _ => attend::<f32, f32>(device, o),
    }
}

fn attend<K: Cached, V: Cached>(device: &CpuDevice, o: &Attention) -> Result<(), DeviceError> {
    let q = View::<f32>::of(device, &o.q)?;
    let (k, v) = (View::<K>::of(device, &o.k)?, View::<V>::of(device, &o.v)?);
    let gate = o.gate.as_ref().map(|gate| View::<f32>::of(device, gate)).transpose()?;
    let blocks = o.select.as_ref().map(|s| View::<i32>::of(device, &s.blocks)).transpose()?;
    let ratio = o.select.as_ref().map_or(1, |s| s.ratio);
    let share = q.groups() / k.groups();
    ViewMut::<f32>::of(device, &o.out)?.tiles([1, 1, v.cols().max(1)]).for_each(|mut tile| {
        let (token, head) = (tile.rows.start, tile.groups.start);
        let position = o.pos0 + token;
        let keys: Vec<usize> = match &blocks {
            None => (0..=position).collect(),
            Some(blocks) => {
                let chosen = blocks.row(token).iter().filter(|&&b| b >= 0).map(|&b| b as usize);
                chosen
                    .flat_map(|b| b * ratio..(b + 1) * ratio)
                    .chain((position + 1) / ratio * ratio..position + 1)
                    .collect()
            }
        };
        let mut wide = vec![0.0; k.cols().max(v.cols())];
        let mut scores: Vec<f32> = Vec::with_capacity(keys.len());
        for &j in &keys {
            K::widen(k.at(j, head / share), &mut wide[..k.cols()]);
            scores.push(dot(q.at(token, head), &wide[..k.cols()]) * o.scale);
        }
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let out = tile.view.at_mut(0, 0);
        out.fill(0.0);
        let mut sum = 0.0;
        for (&j, score) in keys.iter().zip(&scores) {
            let p = exp(score - highest);
            sum += p;
            V::widen(v.at(j, head / share), &mut wide[..v.cols()]);
            add_scaled(out, p, &wide[..v.cols()]);
        }
        let gate = gate.map(|gate| gate.at(token, head));
        for (i, out) in out.iter_mut().enumerate() {
            *out *= 1.0 / sum.max(f32::MIN_POSITIVE) * gate.map_or(1.0, |gate| sigmoid(gate[i]));
        }
    });
    Ok(())
}

/// A type that caches hold.
trait Cached: Element {
    fn widen(src: &[Self], dst: &mut [f32]);
}

impl Cached for f32 {
    fn widen(src: &[f32], dst: &mut [f32]) {
        dst.copy_from_slice(src);
    }
}

impl Cached for f16 {
    fn widen(src: &[f16], dst: &mut [f32]) {
        half::slice::HalfFloatSliceExt::convert_to_f32_slice(src, dst);
    }
}
