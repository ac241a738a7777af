// Ranks within a block on any adapter: 256 comparisons for each entry. rank_subgroups.wgsl has the same function.

// Entries at earlier places with the same expert as each of this place's four, and earlier ones of the four.
fn ranks(place: Place, thread: u32, four: vec4<u32>) -> vec4<u32> {
    by_place[place.first] = four;
    workgroupBarrier();
    var before = ranks_of_four(four);
    for (var other = 0u; other < place.first; other++) {
        let theirs = by_place[other];
        before += vec4<u32>(theirs.xxxx == four) + vec4<u32>(theirs.yyyy == four) + vec4<u32>(theirs.zzzz == four)
            + vec4<u32>(theirs.wwww == four);
    }
    return before;
}
