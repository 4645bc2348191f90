package guard

func threadID() int { return 0 }
