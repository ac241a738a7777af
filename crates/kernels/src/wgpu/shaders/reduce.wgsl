// Sums and maxima over the 256 threads of a group, in an order that never changes.

var<workgroup> reduce_parts: array<f32, 256>;

fn group_sum(thread: u32, x: f32) -> f32 {
    reduce_parts[thread] = x;
    for (var step = 128u; step > 0u; step >>= 1u) {
        workgroupBarrier();
        if thread < step {
            reduce_parts[thread] += reduce_parts[thread + step];
        }
    }
    let sum = workgroupUniformLoad(&reduce_parts[0]);
    workgroupBarrier();
    return sum;
}

fn group_max(thread: u32, x: f32) -> f32 {
    reduce_parts[thread] = x;
    for (var step = 128u; step > 0u; step >>= 1u) {
        workgroupBarrier();
        if thread < step {
            reduce_parts[thread] = max(reduce_parts[thread], reduce_parts[thread + step]);
        }
    }
    let most = workgroupUniformLoad(&reduce_parts[0]);
    workgroupBarrier();
    return most;
}
