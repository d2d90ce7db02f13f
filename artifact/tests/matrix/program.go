package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

type shape interface{ area() float64 }
type square struct{ side float64 }
type circle struct{ radius float64 }

func (s square) area() float64 { return s.side * s.side }
func (c circle) area() float64 { return 3.14 * c.radius * c.radius }
func clamp[T int | float64](x, low, high T) T {
	if x < low {
		return low
	}
	return min(x, high)
}

//go:noinline
func words(count int) string {
	seen := map[string]int{}
	for i := 0; i < count; i++ {
		seen[fmt.Sprint("word", i%7)] += i
	}
	all := make([]string, 0, len(seen))
	for word, number := range seen {
		all = append(all, fmt.Sprintf("%s=%d", word, clamp(number, 0, 100)))
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

func main() {
	total := 0.0
	for i := 0; i < len(os.Args)*10; i++ {
		var s shape = square{float64(i)}
		if i%2 == 0 {
			s = circle{float64(i)}
		}
		total += clamp(s.area(), 0, 1e6)
	}
	fmt.Println(words(len(os.Args)*20), total)
}
