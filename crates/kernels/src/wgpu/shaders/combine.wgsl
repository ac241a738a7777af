// y[t] = sum over k, in k order, of weights[t, k] * rows[pos[t * K + k]], then + sigmoid(gate[t]) * shared[t]; a thread for
// each element.

struct Params {
    rows: View,
    weights: View,
    pos: View,
    shared_y: View,
    gate: View,
    out: View,
    count: u32,
    has_shared: u32,
    has_gate: u32,
    accumulate: u32,
    total: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> rows: array<f32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> pos: array<i32>;
@group(0) @binding(4) var<storage, read_write> shared_y: array<f32>;
@group(0) @binding(5) var<storage, read_write> gate: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn combine(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group, groups) * 256u + thread;
    if i >= p.total {
        return;
    }
    let t = i / p.out.cols;
    let c = i % p.out.cols;
    let to = at(p.out, t, 0u) + c;
    var y = 0.0;
    if p.accumulate == 1u {
        y = out[to];
    }
    for (var j = 0u; j < p.weights.cols; j++) {
        let row = pos[p.pos.first + t * p.weights.cols + j];
        if row >= 0 {
            y += weights[at(p.weights, t, 0u) + j] * rows[at(p.rows, u32(row), 0u) + c];
        }
    }
    if p.has_shared == 1u {
        var factor = 1.0;
        if p.has_gate == 1u {
            factor = sigmoid(gate[at(p.gate, t, 0u)]);
        }
        y += factor * shared_y[at(p.shared_y, t, 0u) + c];
    }
    out[to] = y;
}
