// The gated delta rule, token after token: op.rs has the formula.
//
// delta_norms makes what does not depend on the state: the factors that normalise q and k, decay g and step b.
// delta_net: a workgroup for each value head and 16 columns of its state. A column lies in the registers of 16 threads,
// row i with thread i % 16 of it; its two dot products are sums over these threads.

struct Params {
    q: View,
    k: View,
    v: View,
    alpha: View,
    beta: View,
    a: View,
    dt_bias: View,
    state: View,
    out: View,
    count: u32,
    tokens: u32,
    heads: u32,
    key_heads: u32,
    grouped: u32,
    eps: f32,
    depth: u32,      // Ck
    column_runs: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> k: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read_write> alpha: array<f32>;
@group(0) @binding(5) var<storage, read_write> beta: array<f32>;
@group(0) @binding(6) var<storage, read_write> a: array<f32>;
@group(0) @binding(7) var<storage, read_write> dt_bias: array<f32>;
@group(0) @binding(8) var<storage, read_write> state: array<f32>;
@group(0) @binding(9) var<storage, read_write> out: array<f32>;
@group(0) @binding(10) var<storage, read_write> factors: array<vec4<f32>>; // [T, Hv]: of q, of k, g, b

fn key_head(h: u32) -> u32 {
    return select(h % p.key_heads, h / (p.heads / p.key_heads), p.grouped == 1u);
}

// ln(1 + x) for x in 0..1, by the series of the area tangent.
fn log_1_plus(x: f32) -> f32 {
    let s = x / (2.0 + x); // up to 1/3
    let t = s * s;
    return 2.0 * s * (1.0 + t * (1.0 / 3.0 + t * (0.2 + t * (1.0 / 7.0 + t * (1.0 / 9.0 + t * (1.0 / 11.0 + t * (1.0 / 13.0)))))));
}

fn softplus(x: f32) -> f32 {
    return max(x, 0.0) + log_1_plus(exponential(-abs(x)));
}

@compute @workgroup_size(64)
fn delta_norms(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group, groups) * 64u + thread;
    if i >= p.tokens * p.heads {
        return;
    }
    let t = i / p.heads;
    let h = i % p.heads;
    let from_q = at(p.q, t, key_head(h));
    let from_k = at(p.k, t, key_head(h));
    var squares = vec2(0.0);
    for (var c = 0u; c < p.depth; c++) {
        let two = vec2(q[from_q + c], k[from_k + c]);
        squares += two * two;
    }
    let roots = 1.0 / sqrt(squares + p.eps);
    let rate = a[p.a.first + h] * softplus(alpha[at(p.alpha, t, 0u) + h] + dt_bias[p.dt_bias.first + h]);
    let b = sigmoid(beta[at(p.beta, t, 0u) + h]);
    factors[i] = vec4(roots.x / sqrt(f32(p.depth)), roots.y, exponential(rate), b);
}

const ROWS = 16u; // of a column, in one thread: a depth of up to 256

var<workgroup> parts: array<vec2<f32>, 256>;

// The sum of x over the 16 threads of a column.
fn column_sum(thread: u32, x: f32) -> f32 {
    parts[thread].x = x;
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < 16u; i++) {
        sum += parts[thread % 16u + 16u * i].x;
    }
    workgroupBarrier();
    return sum;
}

@compute @workgroup_size(256)
fn delta_net(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups);
    if number >= p.count {
        return;
    }
    let h = number / p.column_runs;
    let column = number % p.column_runs * 16u + thread % 16u;
    let inside = column < p.v.cols;
    let part = thread / 16u;
    var m: array<f32, ROWS>;
    for (var j = 0u; j < ROWS; j++) {
        let row = part + 16u * j;
        if row < p.depth && inside {
            m[j] = state[at(p.state, h, row) + column];
        }
    }
    for (var t = 0u; t < p.tokens; t++) {
        let f = factors[t * p.heads + h];
        let from_q = at(p.q, t, key_head(h));
        let from_k = at(p.k, t, key_head(h));
        var keys: array<f32, ROWS>;
        var known = 0.0;
        for (var j = 0u; j < ROWS; j++) {
            let row = part + 16u * j;
            if row < p.depth {
                keys[j] = k[from_k + row] * f.y;
                m[j] *= f.z;
                known += m[j] * keys[j];
            }
        }
        var value = 0.0;
        if inside {
            value = v[at(p.v, t, h) + column];
        }
        let d = f.w * (value - column_sum(thread, known));
        var mixed = 0.0;
        for (var j = 0u; j < ROWS; j++) {
            let row = part + 16u * j;
            if row < p.depth {
                m[j] += keys[j] * d;
                mixed += m[j] * (q[from_q + row] * f.x);
            }
        }
        let y = column_sum(thread, mixed);
        if part == 0u && inside {
            out[at(p.out, t, h) + column] = y;
        }
    }
    for (var j = 0u; j < ROWS; j++) {
        let row = part + 16u * j;
        if row < p.depth && inside {
            state[at(p.state, h, row) + column] = m[j];
        }
    }
}
