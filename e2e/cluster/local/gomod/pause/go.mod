module rljob.dev/e2e/pause

go 1.21
