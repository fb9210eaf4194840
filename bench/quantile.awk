# Sorting and quantiles for the summaries of experiments; POSIX awk has neither.

# Sorts values[1..n] in place, by insertion: these are few.
function sort(values, n,   i, j, moved) {
    for (i = 2; i <= n; i++) {
        moved = values[i]
        for (j = i - 1; j >= 1 && values[j] > moved; j--) values[j + 1] = values[j]
        values[j + 1] = moved
    }
}

# The quantile at `share` of values[1..n], which are sorted.
function quantile(values, n, share,   place, low) {
    place = 1 + (n - 1) * share
    low = int(place)
    return values[low] + (place - low) * (values[low + (low < n)] - values[low])
}
