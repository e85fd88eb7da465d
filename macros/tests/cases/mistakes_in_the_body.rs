//! The attributes are used as they should be; what is wrong is in the functions, and is reported there.

mod types {
    #[giveway::main]
    pub async fn run() -> u32 {
        let text: &str = "five";
        text //~ mismatched types
    }

    #[giveway::test]
    async fn test() {
        let _: u32 = "five"; //~ mismatched types
    }

    #[giveway::main(workers = 2)]
    pub async fn missing() -> u32 { //~ mismatched types
        let _ = 5;
    }

    #[giveway::main]
    pub async fn question_mark() -> Result<(), std::num::ParseIntError> {
        "five".parse::<f64>()?; //~ `?` couldn't convert the error to `ParseIntError`
        Ok(())
    }
}

mod awaiting {
    #[giveway::test]
    async fn test() {
        5.await; //~ `{integer}` is not a future
    }
}

mod names {
    #[giveway::main(workers = 1)]
    pub async fn run() {
        let _ = runtime; //~ cannot find value `runtime` in this scope
    }
}

mod elsewhere {
    #[giveway::main(
        crate = "nowhere::giveway" //~ cannot find
    )]
    pub async fn run() {}
}
