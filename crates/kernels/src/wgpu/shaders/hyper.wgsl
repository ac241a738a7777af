// hyper_write: x[t, s, :] += y[t, :] * 2 sigmoid(inject[t, s] / S).
// gate_mean: out[t, d] = mean over s of sigmoid(p[t, s * D + d]) * normed[t, s, d].

struct Params {
    y: View,      // or the gates' logits
    inject: View, // or normed
    x: View,      // or out
    count: u32,
    streams: u32,
    total: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> inject: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(256)
fn hyper_write(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group, groups) * 256u + thread;
    if i >= p.total {
        return;
    }
    let c = i % p.x.cols;
    let s = i / p.x.cols % p.streams;
    let t = i / p.x.cols / p.streams;
    let gate = 2.0 * sigmoid(inject[at(p.inject, t, 0u) + s] / f32(p.streams));
    x[at(p.x, t, s) + c] += y[at(p.y, t, 0u) + c] * gate;
}

@compute @workgroup_size(256)
fn gate_mean(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group, groups) * 256u + thread;
    if i >= p.total {
        return;
    }
    let c = i % p.x.cols;
    let t = i / p.x.cols;
    var sum = 0.0;
    for (var s = 0u; s < p.streams; s++) {
        sum += sigmoid(y[at(p.y, t, 0u) + s * p.x.cols + c]) * inject[at(p.inject, t, s) + c];
    }
    x[at(p.x, t, 0u) + c] = sum / f32(p.streams);
}
