// out = x / sqrt(mean(x^2) + eps) * weight, times an activation of a gate where there is one; a workgroup for each group
// of each row. `out` may be `x` itself: a thread reads and writes the same columns.

struct Params {
    x: View,
    weight: View,
    gate: View,
    out: View,
    count: u32,
    groups: u32,
    weight_groups: u32,
    eps: f32,
    activation: u32, // 0: no gate, 1: sigmoid, 2: silu
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> gate: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn rms_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups);
    if number >= p.count {
        return;
    }
    let r = number / p.groups;
    let g = number % p.groups;
    let begin = at(p.x, r, g);
    var squares = 0.0;
    for (var c = thread; c < p.x.cols; c += 256u) {
        squares += x[begin + c] * x[begin + c];
    }
    let root = 1.0 / sqrt(group_sum(thread, squares) / f32(p.x.cols) + p.eps);
    let to = at(p.out, r, g);
    let weights = at(p.weight, 0u, min(g, p.weight_groups - 1u));
    let gates = at(p.gate, r, g);
    for (var c = thread; c < p.x.cols; c += 256u) {
        var y = x[begin + c] * root * weight[weights + c];
        if p.activation == 1u {
            y *= sigmoid(gate[gates + c]);
        } else if p.activation == 2u {
            y *= silu(gate[gates + c]);
        }
        out[to + c] = y;
    }
}
