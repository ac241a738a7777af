// conv: y[t, c] = silu(sum over j of weight[c, j] * in[t - (k-1-j) * dilation, c]), `in` before the chunk being the state.
// conv_state: afterwards the state holds the last rows of state and chunk together.

struct Params {
    x: View,
    weight: View,
    state: View,
    out: View,
    count: u32,
    tokens: u32,
    history: u32, // rows of the state
    dilation: u32,
    accumulate: u32,
    total: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn conv(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group, groups) * 256u + thread;
    if i >= p.total {
        return;
    }
    let t = i / p.x.cols;
    let c = i % p.x.cols;
    var sum = 0.0;
    for (var j = 0u; j < p.weight.cols; j++) {
        let row = t + j * p.dilation; // of state and chunk together
        var value = 0.0;
        if row < p.history {
            value = state[at(p.state, row, 0u) + c];
        } else {
            value = x[at(p.x, row - p.history, 0u) + c];
        }
        sum += weight[at(p.weight, c, 0u) + j] * value;
    }
    let to = at(p.out, t, 0u) + c;
    if p.accumulate == 1u {
        out[to] += silu(sum);
    } else {
        out[to] = silu(sum);
    }
}

// A thread for each channel: a row is written after it has been moved.
@compute @workgroup_size(256)
fn conv_state(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let c = group_number(group, groups) * 256u + thread;
    if c >= p.x.cols {
        return;
    }
    for (var row = 0u; row < p.history; row++) {
        let begin = row + p.tokens;
        if begin < p.history {
            state[at(p.state, row, 0u) + c] = state[at(p.state, begin, 0u) + c];
        } else {
            state[at(p.state, row, 0u) + c] = x[at(p.x, begin - p.history, 0u) + c];
        }
    }
}
