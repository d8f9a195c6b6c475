# The matrix of a 5-point Laplacian on a square of SIDE x SIDE points, as MUMPS's simpletest reads it, and a right-hand
# side whose solution is 1 everywhere.
function entry(row, column, value) {
	print row, column, value
	sum[row] += value
}
BEGIN {
	n = SIDE * SIDE
	print n
	print n + 4 * SIDE * (SIDE - 1)
	for (y = 0; y < SIDE; y++)
		for (x = 0; x < SIDE; x++) {
			row = y * SIDE + x + 1
			entry(row, row, "4.0")
			if (x > 0) entry(row, row - 1, "-1.0")
			if (x < SIDE - 1) entry(row, row + 1, "-1.0")
			if (y > 0) entry(row, row - SIDE, "-1.0")
			if (y < SIDE - 1) entry(row, row + SIDE, "-1.0")
		}
	for (row = 1; row <= n; row++)
		printf "%.1f\n", sum[row]
}
