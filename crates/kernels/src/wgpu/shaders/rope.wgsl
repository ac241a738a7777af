// Turns pair i of every group of row r by the angle (pos0 + r * step) * freqs[i], in place; a thread for each pair.
//
// Angles reach hundreds of thousands of radians. They are brought to a quarter turn exactly, in integers: an angle is
// m * 2^e with a 24-bit m, so 64 bits of 2/pi, taken at the place that e says, times m give it in quarter turns modulo 4.

struct Params {
    x: View,
    freqs: View,
    count: u32,
    groups: u32,
    neighbours: u32,
    pos0: u32,
    step: u32,
    total: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> freqs: array<f32>;

// The first bits of 2 / pi behind the point, after 64 zeros.
const TWO_OVER_PI = array<u32, 8>(0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u);

// The high and the low word of a * b.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2((a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u), (other << 16u) | (low & 0xffffu));
}

// 32 bits of TWO_OVER_PI from bit `first` on.
fn bits_from(first: u32) -> u32 {
    var words = TWO_OVER_PI;
    let word = first / 32u;
    let shift = first % 32u;
    let high = words[word];
    return select((high << shift) | (words[word + 1u] >> (32u - shift)), high, shift == 0u);
}

// Sine and cosine of a non-negative angle below 2^60, within 1e-7.
fn sine_and_cosine(angle: f32) -> vec2<f32> {
    let bits = bitcast<u32>(angle);
    let exponent = bits >> 23u;
    if exponent < 115u { // below 2^-12: the next terms of both series are below 2^-38
        return vec2(angle, 1.0 - 0.5 * angle * angle);
    }
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    // angle = mantissa * 2^(exponent - 150); floor(2/pi * 2^(exponent - 150 + 62)) modulo 2^64 ends at this bit.
    let end = exponent - 150u + 62u + 64u;
    let high = bits_from(end - 64u);
    let low = bits_from(end - 32u);
    let product = wide_product(low, mantissa);
    // Quarter turns in 2 + 30 bits; half a quarter more makes the cut a rounding.
    let turns = product.x + high * mantissa;
    let rounded = turns + 0x20000000u;
    let quarter = rounded >> 30u;
    let rest = bitcast<i32>(turns - (quarter << 30u));
    let r = f32(rest) * 1.4629180792671596e-9; // pi / 2 / 2^30
    let s = r * r;
    let sine = r + r * s * (-1.6666654611e-1 + s * (8.3321608736e-3 - s * 1.9515295891e-4));
    let cosine = 1.0 - 0.5 * s + s * s * (4.166664568298827e-2 + s * (-1.388731625493765e-3 + s * 2.443315711809948e-5));
    switch quarter {
        case 0u: { return vec2(sine, cosine); }
        case 1u: { return vec2(cosine, -sine); }
        case 2u: { return vec2(-sine, -cosine); }
        default: { return vec2(-cosine, sine); }
    }
}

@compute @workgroup_size(256)
fn rope(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let number = group_number(group, groups) * 256u + thread;
    if number >= p.total {
        return;
    }
    let n = p.freqs.cols;
    let i = number % n;
    let g = number / n % p.groups;
    let r = number / n / p.groups;
    let angle = f32(p.pos0 + r * p.step) * freqs[p.freqs.first + i];
    let turn = sine_and_cosine(abs(angle));
    let sine = select(turn.x, -turn.x, angle < 0.0);
    let first = at(p.x, r, g);
    let a = first + select(i, 2u * i, p.neighbours == 1u);
    let b = first + select(i + n, 2u * i + 1u, p.neighbours == 1u);
    let xa = x[a];
    let xb = x[b];
    x[a] = xa * turn.y - xb * sine;
    x[b] = xb * turn.y + xa * sine;
}
