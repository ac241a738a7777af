// Ranks within a block by subgroups of any size. rank.wgsl has the same function for every adapter.

// The threads of a subgroup before the one with number `lane`, as a ballot has them.
fn threads_before(lane: u32) -> vec4<u32> {
    let here = vec4(lane) - min(vec4(lane), vec4(0u, 32u, 64u, 96u)); // of each word, and beyond
    return select((vec4(1u) << (here & vec4(31u))) - vec4(1u), vec4(0xffffffffu), here >= vec4(32u));
}

fn ones(ballot: vec4<u32>) -> u32 {
    let count = countOneBits(ballot);
    return count.x + count.y + count.z + count.w;
}

var<workgroup> turn: u32; // place of the subgroup whose turn it is

// Entries at earlier places with the same expert as each of this place's four, and earlier ones of the four. There are at most
// RANGE experts; number p.experts stands for none.
//
// Within a subgroup, ballots on the bits of the experts' numbers tell which threads have the same one. Then subgroups add their
// entries to the experts' counters, one subgroup after another.
fn ranks(place: Place, thread: u32, four: vec4<u32>) -> vec4<u32> {
    for (var e = thread; e < p.experts; e += 256u) {
        atomicStore(&in_range[e], 0u);
    }
    if thread == 0u {
        turn = 0u;
    }
    let bits = 32u - countLeadingZeros(p.experts);
    let before = threads_before(place.lane);
    var counts = ranks_of_four(four);
    var theirs = four;
    for (var j = 0u; j < 4u; j++) {
        var same_x = before;
        var same_y = before;
        var same_z = before;
        var same_w = before;
        for (var bit = 0u; bit < bits; bit++) {
            let has = subgroupBallot(((theirs.x >> bit) & 1u) == 1u);
            let unlike = ((four >> vec4(bit)) & vec4(1u)) - vec4(1u); // all ones where this thread's bit is 0
            same_x &= has ^ vec4(unlike.x);
            same_y &= has ^ vec4(unlike.y);
            same_z &= has ^ vec4(unlike.z);
            same_w &= has ^ vec4(unlike.w);
        }
        counts += vec4(ones(same_x), ones(same_y), ones(same_z), ones(same_w));
        theirs = theirs.yzwx;
    }
    var earlier = vec4(0u);
    loop {
        let now = workgroupUniformLoad(&turn);
        if now >= 256u {
            break;
        }
        let mine = now == place.first;
        for (var j = 0u; j < 4u; j++) {
            if mine && four[j] < p.experts {
                earlier[j] = atomicLoad(&in_range[four[j]]);
            }
        }
        workgroupBarrier();
        for (var j = 0u; j < 4u; j++) {
            if mine && four[j] < p.experts {
                atomicMax(&in_range[four[j]], earlier[j] + counts[j] + 1u);
            }
        }
        if mine && place.lane == 0u {
            turn = now + place.size;
        }
    }
    return earlier + counts;
}
