// What every kernel begins with: tensors as kernels see them, group numbers, and functions whose accuracy WGSL leaves open.
//
// WGSL only promises a few bits of exp, sin and cos, and leaves the rounding of its own f16 conversion to the driver.
// Those are made of additions, products and integers here, so that an answer does not depend on whose driver it was.

// Where the elements of a tensor are: (row, group, column) is at first + row * row_stride + group * group_stride + column.
struct View {
    first: u32,
    row_stride: u32,
    group_stride: u32,
    cols: u32,
}

fn at(v: View, row: u32, group: u32) -> u32 {
    return v.first + row * v.row_stride + group * v.group_stride;
}

// A grid of groups is folded into two dimensions where it is longer than the adapter's limit.
fn group_number(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}

// The value of an f16, exactly, subnormals and infinities included.
fn half_to_float(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let exponent = (bits >> 10u) & 31u;
    let mantissa = bits & 1023u;
    if exponent == 0u {
        return bitcast<f32>(sign | bitcast<u32>(f32(mantissa) * 5.9604644775390625e-8));
    }
    return bitcast<f32>(sign | (select(exponent + 112u, 255u, exponent == 31u) << 23u) | (mantissa << 13u));
}

// The nearest f16, ties to even, subnormals kept.
fn float_to_half(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u | ((size >> 13u) & 1023u);
    }
    if size >= 0x477ff000u { // 65520: halfway to what would be 2^16
        return sign | 0x7c00u;
    }
    if size >= 0x38800000u { // 2^-14, the least normal f16
        return sign | ((size + 0xfffu + ((size >> 13u) & 1u) - 0x38000000u) >> 13u);
    }
    let exponent = size >> 23u;
    if exponent < 102u { // below half of 2^-24
        return sign;
    }
    let mantissa = (size & 0x7fffffu) | 0x800000u;
    let shift = 126u - exponent;
    let whole = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    return sign | (whole + select(0u, 1u, rest > middle || (rest == middle && (whole & 1u) == 1u)));
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// 2^n for n in -126..127.
fn power_of_two(n: i32) -> f32 {
    return bitcast<f32>(u32(n + 127) << 23u);
}

// The least s for which 2^-s times a number of this size is inside the range of f16: 65520 and more would round to infinity.
// 0 for infinity itself, which has no such power.
fn range_exponent(most: f32) -> i32 {
    let bits = bitcast<u32>(most);
    if most < 65520.0 || bits >= 0x7f800000u {
        return 0;
    }
    let s = i32(bits >> 23u) - 127 - 15; // most = m * 2^(s + 15), m in 1..2
    return s + i32(most * power_of_two(-s) >= 65520.0);
}

// e^x within 2 ulp; 0 and infinity where it leaves the range.
fn exponential(x: f32) -> f32 {
    if x > 88.7228 {
        var infinity = 0x7f800000u; // a constant expression may not be infinite
        return bitcast<f32>(infinity);
    }
    if x < -103.9 {
        return 0.0;
    }
    let n = round(x * 1.4426950408889634);
    // ln 2 in two parts, the first with zeros at its end, so that n times it is exact.
    let r = (x - n * 0.693359375) + n * 2.12194440054690583e-4;
    let p = 1.0 + (r + r * r * (0.5 + r * (1.6666665459e-1 + r * (4.1665795894e-2 + r * (8.3334519073e-3 + r * (1.3981999507e-3 + r * 1.9875691500e-4))))));
    let half_n = i32(n) / 2;
    return p * power_of_two(half_n) * power_of_two(i32(n) - half_n);
}

fn sigmoid(x: f32) -> f32 {
    // The smaller half directly: 1 - (a number near 1) would lose it.
    let e = exponential(-abs(x));
    return select(1.0, e, x < 0.0) / (1.0 + e);
}

fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}
